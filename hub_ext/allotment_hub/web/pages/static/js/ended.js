/** After the stop of a session: what happened, why, and a new start. */

import { CallError, _, call, h, rows, segment, show, site, start, timeElement } from './base.js';
import { parseTime, showSpan } from './sentences.js';
import { Live } from './live.js';
import { basisChip, newsLine } from './parts.js';
import { leaseStateText, leaseText, placesText, triggerText } from './wording.js';

const id = document.body.dataset.id || null;
const query = JSON.parse(document.body.dataset.query || '{}');
const content = document.getElementById('content');

/** The lease of the address, or the last one that a server of the reader had. */
async function load() {
  if (id !== null) {
    return call('GET', `leases/${segment(id)}`);
  }
  const server = query.server ?? '';
  const states = 'granted,preparing,active,noticed,frozen,stopping,released';
  const found = await call('GET', `leases?state=${states}&user=${segment(site.user)}&limit=200`);
  const mine = rows(found, 'leases').filter(lease => (lease.server ?? '') === server);
  mine.sort((a, b) => Date.parse(b.granted_at) - Date.parse(a.granted_at));
  if (!mine.length) {
    throw new CallError(404, {});
  }
  return mine[0];
}

function draw(lease, news) {
  content.removeAttribute('aria-busy');
  if (!lease) {
    show(
      content,
      h(
        'section',
        { class: 'al-card al-narrow' },
        h(
          'h1',
          {},
          news.error?.status === 404 ? _('No session with GPUs is known here.') : _('Session ended')
        ),
        news.error?.status === 404 ? null : newsLine(news),
        h('p', {}, h('a', { class: 'btn btn-primary', href: site.prefix }, _('To the overview')))
      )
    );
    return;
  }
  const over = lease.state === 'released';
  show(
    content,
    h(
      'section',
      { class: 'al-card al-narrow', 'data-lease-state': lease.state },
      h(
        'h1',
        {},
        over
          ? _('Your session has ended: {shape}', { shape: leaseText(lease) })
          : _('Your session is {state}: {shape}', {
              state: leaseStateText(lease.state),
              shape: leaseText(lease)
            })
      ),
      h('p', { class: 'al-lead' }, whyText(lease)),
      lease.reclaim?.evidence?.length && lease.reclaim.trigger !== 'owner'
        ? h(
            'ul',
            { class: 'al-quiet' },
            lease.reclaim.evidence.map(text => h('li', {}, String(text)))
          )
        : null,
      h(
        'dl',
        { class: 'al-list' },
        fact(_('Began'), timeElement(lease.active_at ?? lease.granted_at)),
        over
          ? fact(_('Ended'), timeElement(lease.released_at))
          : fact(_('Term ends'), timeElement(lease.term_ends_at)),
        over ? fact(_('Lasted'), lasted(lease)) : null,
        fact(_('Where'), placesText(lease)),
        fact(_('Team'), lease.tenant),
        fact(_('Basis'), basisChip(lease)),
        fact(_('Rule'), `${lease.rule} · ${_('policy version {n:n}', { n: lease.policy_version })}`)
      ),
      over ? h('p', { class: 'al-quiet' }, _('Files that were saved are still there.')) : null,
      h(
        'div',
        { class: 'al-actions' },
        over
          ? h(
              'a',
              { class: 'btn btn-primary', href: againAddress(lease) },
              _('New session like this')
            )
          : null,
        h('a', { class: 'btn btn-outline-secondary', href: site.prefix }, _('To the overview'))
      )
    )
  );
}

function whyText(lease) {
  if (lease.reclaim) {
    const words = triggerText(lease.reclaim.trigger);
    return lease.reclaim.for_tenant
      ? `${words} ${_('Team {tenant} asked for its GPUs.', { tenant: lease.reclaim.for_tenant })}`
      : words;
  }
  if (lease.state !== 'released') {
    return _('It still holds its GPUs.');
  }
  return lease.end_reason
    ? _('What was recorded: {text}.', { text: lease.end_reason.replace(/\.$/, '') })
    : _('It was stopped, and its GPUs were given back.');
}

function lasted(lease) {
  const from = parseTime(lease.active_at);
  const to = parseTime(lease.released_at);
  if (!from) {
    return _('it never came up');
  }
  return to ? showSpan(Math.round((to - from) / 1000)) : '–';
}

function fact(name, value) {
  return value ? [h('dt', {}, name), h('dd', {}, value)] : null;
}

function againAddress(lease) {
  const values = new URLSearchParams({
    gpus: lease.gpus,
    flavor: lease.flavor,
    tenant: lease.tenant
  });
  if (lease.server) {
    values.set('server', lease.server);
  }
  return `${site.prefix}new?${values}`;
}

await start();
new Live({
  load,
  draw,
  wants: event => event.name === 'lease' && (id === null || event.data?.id === id)
}).start();

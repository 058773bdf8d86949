/** The overview: my sessions, my place in line, my teams' quotas, what there is. */

import { _, call, h, segment, show, site, start } from './base.js';
import { Live } from './live.js';
import { capacityTable, quotaBar } from './bars.js';
import { leaseCard, newsLine } from './parts.js';
import { askText, reasonWords, requestStateText, whenText } from './wording.js';

const content = document.getElementById('content');

async function load() {
  const [me, capacity] = await Promise.all([call('GET', 'me'), call('GET', 'capacity')]);
  return { me, capacity };
}

function draw(model, news) {
  if (!model) {
    show(content, h('p', {}, news.error ? news.error.message : newsLine(news)));
    return;
  }
  content.removeAttribute('aria-busy');
  const { me, capacity } = model;
  const leases = (me.leases ?? []).filter(lease => lease.state !== 'released');
  const waiting = (me.requests ?? []).filter(
    row => ['queued', 'parked'].includes(row.state) || (row.state === 'granted' && !row.lease)
  );
  show(
    content,
    h(
      'header',
      { class: 'al-title' },
      h('h1', {}, _('GPUs')),
      newsLine(news),
      h('a', { class: 'btn btn-primary', href: `${site.prefix}new` }, _('New session'))
    ),
    switches(capacity),
    section(
      _('Your sessions'),
      leases.length
        ? leases.map(lease => leaseCard(lease, () => live.refresh()))
        : h('p', { class: 'al-quiet' }, _('You hold no GPUs.'))
    ),
    waiting.length ? section(_('In line'), waiting.map(requestCard)) : null,
    section(
      _('Your teams'),
      (me.tenants ?? []).length
        ? h(
            'div',
            { class: 'al-grid' },
            me.tenants.flatMap(tenant =>
              (tenant.quotas ?? []).map(quota => quotaBar(quota, tenant.name))
            )
          )
        : h(
            'p',
            { class: 'al-quiet' },
            _('You belong to no team that has a quota here. Ask whoever runs this hub for one.')
          )
    ),
    section(_('All GPUs'), capacityTable(capacity))
  );
}

function section(title, ...children) {
  return h('section', { class: 'al-section' }, h('h2', {}, title), children);
}

function requestCard(row) {
  const reason = row.reasons?.[0];
  return h(
    'article',
    { class: 'al-card al-row', 'data-request': row.id },
    h(
      'div',
      {},
      h('h3', {}, askText(row.asked)),
      h(
        'p',
        { class: 'al-quiet' },
        row.state === 'queued' && row.position
          ? `${
              row.in_line
                ? _('place {position:n} of {total:n}', {
                    position: row.position,
                    total: row.in_line
                  })
                : _('place {position:n}', { position: row.position })
            } · ${whenText(row.forecast)}`
          : requestStateText(row.state)
      ),
      reason ? h('p', {}, reasonWords(reason).head) : null
    ),
    h(
      'a',
      {
        class: 'btn btn-outline-secondary btn-sm',
        href: `${site.prefix}waiting/${segment(row.id)}`
      },
      _('Waiting room')
    )
  );
}

/** What holds everybody up at the moment. */
function switches(capacity) {
  const on = Object.entries(capacity.switches ?? {});
  const known = {
    paused: 'GrantsPaused',
    grants_paused: 'GrantsPaused',
    unreachable: 'BackendUnreachable',
    backend_unreachable: 'BackendUnreachable',
    reconciling: 'Reconciling'
  };
  return on.map(([name, detail]) => {
    const words = reasonWords({
      code: known[name] ?? name,
      evidence: { note: detail.text || undefined, detail: detail.text || undefined }
    });
    return h('p', { class: 'alert alert-warning' }, h('b', {}, words.head), ' ', words.more);
  });
}

await start();
const live = new Live({ load, draw }).start();

/** Pieces that several pages show: reasons, sessions, notices, tables. */

import {
  _,
  button,
  call,
  confirmButton,
  h,
  millisecondsTo,
  segment,
  serverAddress,
  site,
  spanText,
  timeElement
} from './base.js';
import { parseTime } from './sentences.js';
import { leaseStateText, leaseText, placesText, reasonWords, triggerText } from './wording.js';

/** A reason as a block: first sentence bold, then the rest, then rule and times. */
export function reasonBlock(reason, main = true) {
  const { head, more } = reasonWords(reason);
  const facts = [];
  if (reason.since) {
    facts.push(_('since {since:time}', { since: reason.since }));
  }
  if (reason.until) {
    facts.push(_('until {until:time} at the latest', { until: reason.until }));
  }
  if (reason.rule) {
    facts.push(_('rule: {rule}', { rule: reason.rule }));
  }
  return h(
    'div',
    { class: main ? 'al-reason' : 'al-reason al-reason-less', 'data-code': reason.code },
    h('p', {}, h('b', {}, head), more ? ` ${more}` : ''),
    facts.length ? h('p', { class: 'al-facts' }, facts.join(' · ')) : null
  );
}

/** All reasons: first the one that binds, then what those in front wait for. */
export function reasonBlocks(reasons) {
  const [first, ...others] = reasons ?? [];
  if (!first) {
    return null;
  }
  return [
    reasonBlock(first),
    first.code === 'BehindInQueue' && others.length
      ? h('p', { class: 'al-quiet al-small al-front' }, _('What those in front wait for:'))
      : null,
    others.map(other => reasonBlock(other, false))
  ];
}

/** A chip that says what basis a lease stands on; never by colour alone. */
export function basisChip(lease) {
  if (lease.basis !== 'borrowed') {
    return h('span', { class: 'al-chip al-chip-own' }, _('guaranteed'));
  }
  const lenders = Object.entries(lease.lenders ?? {});
  const from = lenders
    .map(([name, gpus]) =>
      name === 'unassigned'
        ? _('{gpus:n} that nobody owns', { gpus })
        : _('{gpus:n} from {name}', { gpus, name })
    )
    .join(', ');
  return h(
    'span',
    { class: 'al-chip al-chip-borrowed' },
    '⇄ ',
    from ? _('borrowed: {from}', { from }) : _('borrowed')
  );
}

/** The term of a lease as a line with where now is on it. */
export function termLine(lease) {
  const begins = parseTime(lease.active_at ?? lease.granted_at);
  const ends = parseTime(lease.term_ends_at);
  const left = millisecondsTo(lease.term_ends_at);
  if (!begins || !ends || left === null || ends <= begins) {
    return null;
  }
  const part = Math.min(1, Math.max(0, 1 - left / (ends - begins)));
  return h(
    'div',
    { class: 'al-term' },
    h(
      'div',
      { class: 'al-term-bar', 'aria-hidden': 'true' },
      h('i', { style: { width: `${(part * 100).toFixed(1)}%` } })
    ),
    h(
      'div',
      { class: 'al-term-ends' },
      h('span', {}, timeElement(begins)),
      h(
        'span',
        {},
        _('term ends {at:time}', { at: lease.term_ends_at }),
        left > 0 ? ` (${_('in {span}', { span: spanText(left) })})` : ''
      )
    )
  );
}

/** What a notice says and what can be done about it. */
export function reclaimBlock(lease) {
  const reclaim = lease.reclaim;
  if (!reclaim) {
    return null;
  }
  const left = millisecondsTo(reclaim.step_ends_at);
  return h(
    'div',
    { class: 'al-warning', role: 'note' },
    h(
      'p',
      {},
      h('b', {}, triggerText(reclaim.trigger)),
      reclaim.for_tenant
        ? ` ${_('Team {tenant} asked for its GPUs.', { tenant: reclaim.for_tenant })}`
        : ''
    ),
    h(
      'p',
      {},
      reclaim.step === 'stop'
        ? _('The session is being stopped now.')
        : left !== null && left > 0
          ? _('It stops at {at:time}, in {span}. Save your work before.', {
              at: reclaim.step_ends_at,
              span: spanText(left)
            })
          : _('It stops now.')
    )
  );
}

/** A session with what can be done with it. */
export function leaseCard(lease, refresh) {
  const act = name => async () => {
    await call('POST', `leases/${segment(lease.id)}/${name}`, { body: {} });
    await refresh();
  };
  const undo = lease.reclaim?.undo ?? [];
  const running = ['active', 'noticed'].includes(lease.state);
  const starting = ['granted', 'preparing'].includes(lease.state);
  const own = lease.user === site.user;
  return h(
    'article',
    { class: 'al-card al-lease', 'data-lease': lease.id, 'data-state': lease.state },
    h('header', {}, h('h3', {}, leaseText(lease)), basisChip(lease)),
    h(
      'p',
      { class: 'al-quiet' },
      [
        leaseStateText(lease.state),
        lease.server ? _('server {name}', { name: lease.server }) : null,
        placesText(lease),
        _('team {tenant}', { tenant: lease.tenant }),
        own ? null : lease.user
      ]
        .filter(Boolean)
        .join(' · ')
    ),
    reclaimBlock(lease),
    lease.active_at ? termLine(lease) : null,
    h(
      'div',
      { class: 'al-actions' },
      running && own && site.hub
        ? h(
            'a',
            { class: 'btn btn-primary btn-sm', href: serverAddress(lease.user, lease.server) },
            _('Open')
          )
        : null,
      starting && own
        ? h(
            'a',
            {
              class: 'btn btn-primary btn-sm',
              href: `${site.prefix}waiting/${segment(lease.request)}`
            },
            _('Follow the start')
          )
        : null,
      undo.includes('keep') ? button(_('Keep it'), act('keep')) : null,
      lease.renewals_left > 0 && running
        ? button(_('Renew ({left:n} left)', { left: lease.renewals_left }), act('renew'), {
            key: `renew-${lease.id}`
          })
        : null,
      ['stopping', 'released'].includes(lease.state)
        ? null
        : confirmButton(
            _('Stop and give back'),
            _('Stop this session? What is not saved is lost.'),
            act('release'),
            { key: `release-${lease.id}` }
          )
    )
  );
}

/** One line about the connection: how fresh what is shown is. */
export function newsLine(news) {
  if (news.state === 'live') {
    return h(
      'span',
      { class: 'al-news' },
      h('i', { class: 'al-dot al-dot-live' }),
      _('Up to date by itself')
    );
  }
  if (news.state === 'asking') {
    return h(
      'span',
      { class: 'al-news' },
      h('i', { class: 'al-dot al-dot-asking' }),
      _('As of {at:time}; asks again every few seconds', { at: news.at })
    );
  }
  if (news.state === 'unreachable') {
    return h(
      'span',
      { class: 'al-news al-bad' },
      h('i', { class: 'al-dot al-dot-lost' }),
      news.at
        ? _('Allotment does not answer. What you see is from {at:time}; places in line are kept.', {
            at: news.at
          })
        : _('Allotment does not answer. Places in line are kept; this page tries again by itself.')
    );
  }
  if (news.state === 'refused') {
    const out = news.error.status === 401 || news.error.problem?.code === 'XsrfMissing';
    return h(
      'span',
      { class: 'al-news al-bad' },
      h('i', { class: 'al-dot al-dot-lost' }),
      out ? _('You are not logged in any more; load this page again.') : news.error.message
    );
  }
  return h('span', { class: 'al-news' }, _('Loading…'));
}

/** A table with a head; cells are text or elements. */
export function table(heads, cells, properties = {}) {
  return h(
    'div',
    { class: 'al-scroll', tabindex: '0', role: 'region', 'aria-label': properties.label ?? '' },
    h(
      'table',
      { class: 'table al-table' },
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          heads.map(head => h('th', { scope: 'col' }, head))
        )
      ),
      h(
        'tbody',
        {},
        cells.map(row =>
          h(
            'tr',
            {},
            row.map(cell => h('td', {}, cell))
          )
        )
      )
    )
  );
}

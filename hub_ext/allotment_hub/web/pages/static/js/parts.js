/** Pieces that several pages show: shapes, reasons, quota bars, capacity, leases. */

import {
  N_,
  _,
  button,
  call,
  confirmButton,
  h,
  millisecondsTo,
  options,
  segment,
  serverAddress,
  site,
  spanText,
  timeElement,
  timeText
} from './base.js';
import {
  flavorName,
  parseTime,
  reasonParts,
  say,
  showNumber,
  showSpan
} from './sentences.js';

/** The four ways of being there without serving, with what each means. */
export const UNUSABLE = [
  ['free_wrong_shape', N_('Free, wrong shape'), N_('Free, but not in the shape that those who wait asked for.')],
  ['free_quota_blocked', N_('Free, kept by quota'), N_('Free, but no quota lets those who wait have them.')],
  ['held_not_used', N_('Held, not used'), N_('Held by a session that does not use them.')],
  ['held_preparing', N_('Held, getting ready'), N_('Held for a session that is still getting ready.')]
];

export const SHARES = [
  ['in_use', N_('In use'), 'use'],
  ['held_preparing', N_('Held, getting ready'), 'preparing'],
  ['held_not_used', N_('Held, not used'), 'unused'],
  ['free_quota_blocked', N_('Free, kept by quota'), 'blocked'],
  ['free_wrong_shape', N_('Free, wrong shape'), 'shape'],
  ['free', N_('Free'), 'free'],
  ['out_of_service', N_('Out of service'), 'out']
];

/** "4 × A100 80 GB on one node, joined by NVLink". */
export function askText(asked) {
  const kind = asked.flavor ? flavorName(asked.flavor) : _('GPU of any kind');
  const parts = [`${showNumber(asked.gpus)} × ${kind}`];
  if (asked.nodes > 1) {
    parts.push(_('on {nodes:n} nodes', { nodes: asked.nodes }));
  } else if (asked.gpus > 1 && asked.same_node === false) {
    parts.push(_('on any nodes'));
  } else if (asked.gpus > 1 && asked.same_node !== false) {
    parts.push(_('on one node'));
  }
  if (asked.nvlink) {
    parts.push(_('joined by NVLink'));
  }
  if (asked.min_memory) {
    parts.push(_('at least {memory:memory} each', { memory: asked.min_memory }));
  }
  return parts.join(site.lang === 'zh' ? '，' : ' ');
}

/** "2 × A100 80 GB" of a lease. */
export function leaseText(lease) {
  const gpus =
    lease.gpus ??
    (lease.devices ?? []).reduce((sum, device) => sum + (device.share ?? 1), 0);
  const flavor = lease.flavor ?? lease.devices?.[0]?.flavor;
  return `${showNumber(gpus)} × ${flavor ? flavorName(flavor) : 'GPU'}`;
}

/** "n1: 0, 1" for each node. */
export function placesText(lease) {
  const nodes = new Map();
  for (const device of lease.devices ?? []) {
    nodes.set(device.node, [...(nodes.get(device.node) ?? []), device.index]);
  }
  return [...nodes].map(([node, indexes]) => `${node}: ${indexes.join(', ')}`).join('; ');
}

/** The words of a reason, always from its code and numbers, so that they follow the language. */
export function reasonWords(reason) {
  const { head, more } = reasonParts(reason.code, reason.evidence ?? {}, {
    until: reason.until,
    ...options()
  });
  return { head, more };
}

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

/** What a change to a request amounts to: "2 × A100 80 GB". */
export function changeText(change, asked) {
  const merged = { ...asked, ...change };
  const shapeChanged = ['gpus', 'flavor', 'nodes', 'nvlink', 'min_memory', 'same_node'].some(
    key => key in change
  );
  const parts = shapeChanged ? [askText(merged)] : [];
  if ('duration' in change) {
    parts.push(_('for {duration:duration}', { duration: change.duration }));
  }
  if (change.nvlink === false) {
    parts.push(_('without NVLink'));
  }
  if (change.borrow === true) {
    parts.push(_('borrowing allowed'));
  }
  if ('tenant' in change) {
    parts.push(_('for team {tenant}', { tenant: change.tenant }));
  }
  if ('class' in change) {
    parts.push(_('as class {class}', { class: change.class }));
  }
  return parts.join(', ') || JSON.stringify(change);
}

/** When something could start: "could start now", "about 15:10", "not known". */
export function whenText(forecast) {
  const expected =
    typeof forecast === 'string' ? forecast : (forecast?.expected_start ?? null);
  if (expected === null) {
    return _('start not known');
  }
  const left = millisecondsTo(expected);
  if (left !== null && left < 30_000) {
    return _('could start now');
  }
  const latest = typeof forecast === 'object' ? forecast.latest_start : null;
  return latest && latest === expected
    ? _('{at:time}, certain', { at: expected })
    : _('about {at:time}', { at: expected });
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

const LEASE_STATES = {
  granted: N_('about to start'),
  preparing: N_('getting ready'),
  active: N_('running'),
  noticed: N_('notice given'),
  frozen: N_('frozen'),
  stopping: N_('stopping'),
  released: N_('ended')
};

export const leaseStateText = state => _(LEASE_STATES[state] ?? state);

const REQUEST_STATES = {
  queued: N_('in line'),
  parked: N_('parked'),
  granted: N_('your turn'),
  done: N_('ended'),
  cancelled: N_('cancelled'),
  rejected: N_('refused'),
  expired: N_('expired')
};

export const requestStateText = state => _(REQUEST_STATES[state] ?? state);

const OTHER_STATES = {
  // verdicts of activity
  active: N_('active'),
  protected: N_('protected'),
  unused: N_('unused'),
  idle: N_('idle'),
  abandoned: N_('abandoned'),
  stale: N_('no longer reporting'),
  unknown: N_('unknown'),
  preparing: N_('getting ready'),
  // health of nodes and devices
  ok: N_('in order'),
  degraded: N_('degraded'),
  lost: N_('lost'),
  dirty: N_('not clean')
};

/** A verdict or a health in words. */
export const stateText = state => _(OTHER_STATES[state] ?? state);

/** Why a lease is taken back, or was. */
export const triggerText = trigger => say(`triggers.${trigger}`);

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
    h(
      'header',
      {},
      h('h3', {}, leaseText(lease)),
      basisChip(lease)
    ),
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
        ? button(
            _('Renew ({left:n} left)', { left: lease.renewals_left }),
            act('renew'),
            { key: `renew-${lease.id}` }
          )
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

/** One quota line as a bar: own, borrowed, lent out, still free. */
export function quotaBar(quota, tenant) {
  const whole = Math.max(quota.ceiling, quota.used + quota.lent, quota.guarantee, 1e-9);
  const segments = [
    ['own', _('own'), quota.guaranteed + (quota.over ?? 0)],
    ['borrowed', _('borrowed'), quota.borrowed],
    ['lent', _('lent to others'), quota.lent],
    ['own-free', _('own, free'), quota.free],
    [
      'may',
      _('may be borrowed'),
      Math.max(0, quota.ceiling - Math.max(quota.guarantee, quota.used + quota.lent + quota.free))
    ]
  ].filter(([, , amount]) => amount > 0);
  const label = segments
    .map(([, text, amount]) => `${text} ${showNumber(amount)}`)
    .join(', ');
  return h(
    'div',
    { class: 'al-quota' },
    h(
      'div',
      { class: 'al-quota-head' },
      h('b', {}, `${tenant} · ${flavorName(quota.flavor)}`),
      h('span', { class: 'al-quiet' }, _('pool {pool}', { pool: quota.pool }))
    ),
    bar(segments.map(([name, , amount]) => [name, amount / whole]), label),
    h(
      'div',
      { class: 'al-quota-foot' },
      h(
        'span',
        {},
        _('{used:n} of at most {ceiling:n} in use', {
          used: quota.used,
          ceiling: quota.ceiling
        })
      ),
      h(
        'span',
        { class: 'al-quiet' },
        _('guarantee {guarantee:n}', { guarantee: quota.guarantee })
      )
    ),
    legend(segments)
  );
}

/** A bar of segments, described in words for who cannot see it. */
export function bar(segments, label) {
  return h(
    'div',
    { class: 'al-bar', role: 'img', 'aria-label': label },
    segments.map(([name, part]) =>
      h('i', {
        class: `al-seg al-seg-${name}`,
        style: { 'flex-grow': String(Math.max(part, 0.001)) }
      })
    )
  );
}

export function legend(segments) {
  return h(
    'ul',
    { class: 'al-legend' },
    segments.map(([name, text, amount]) =>
      h(
        'li',
        {},
        h('i', { class: `al-key al-seg-${name}`, 'aria-hidden': 'true' }),
        `${text} ${showNumber(amount)}`
      )
    )
  );
}

/** What there is of each flavor, by share, and what lies behind each unusable one. */
export function capacityTable(capacity) {
  const lines = (capacity.pools ?? []).flatMap(pool =>
    (pool.flavors ?? []).map(line => ({ pool: pool.name, ...line }))
  );
  if (!lines.length) {
    return h('p', { class: 'al-quiet' }, _('No GPUs are known here.'));
  }
  return h(
    'div',
    { class: 'al-capacity' },
    lines.map(line => capacityLine(line))
  );
}

function capacityLine(line) {
  const segments = SHARES.map(([key, text, name]) => [name, _(text), line[key] ?? 0]).filter(
    ([, , amount]) => amount > 0
  );
  const whole = Math.max(line.total ?? 0, 1e-9);
  const told = UNUSABLE.filter(([key]) => line[key] > 0);
  return h(
    'section',
    { class: 'al-quota', 'aria-label': `${flavorName(line.flavor)}, ${line.pool}` },
    h(
      'div',
      { class: 'al-quota-head' },
      h('b', {}, flavorName(line.flavor)),
      h('span', { class: 'al-quiet' }, _('pool {pool}', { pool: line.pool }))
    ),
    bar(
      segments.map(([name, , amount]) => [name, amount / whole]),
      segments.map(([, text, amount]) => `${text} ${showNumber(amount)}`).join(', ')
    ),
    h(
      'div',
      { class: 'al-quota-foot' },
      h('span', {}, _('{free:n} of {total:n} free', { free: line.free, total: line.in_service })),
      line.deficit > 0
        ? h(
            'span',
            { class: 'al-bad' },
            _('{deficit:gpus} held on devices that are out of service', { deficit: line.deficit })
          )
        : null
    ),
    legend(segments),
    told.length
      ? h(
          'details',
          { class: 'al-behind', 'data-key': `behind-${line.pool}-${line.flavor}` },
          h('summary', {}, _('What does not serve, and why')),
          h(
            'dl',
            {},
            told.map(([key, text, meaning]) => [
              h('dt', {}, `${_(text)}: ${showNumber(line[key])}`),
              h('dd', {}, _(meaning), behindList(line.behind ?? [], key))
            ])
          )
        )
      : null
  );
}

function behindList(behind, key) {
  const rows = behind.filter(row => row.share === key);
  return rows.length
    ? h(
        'ul',
        {},
        rows.map(row =>
          h(
            'li',
            {},
            `${showNumber(row.gpus)}: ${reasonParts(row.code, {}).head} ${_('Waiting: team {tenant}.', { tenant: row.tenant })}`
          )
        )
      )
    : null;
}

/** One line about the connection: how fresh what is shown is. */
export function newsLine(news) {
  if (news.state === 'live') {
    return h('span', { class: 'al-news' }, h('i', { class: 'al-dot al-dot-live' }), _('Up to date by itself'));
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
      h('thead', {}, h('tr', {}, heads.map(head => h('th', { scope: 'col' }, head)))),
      h('tbody', {}, cells.map(row => h('tr', {}, row.map(cell => h('td', {}, cell)))))
    )
  );
}

export { flavorName, showNumber, showSpan, timeText };

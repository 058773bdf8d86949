/** Quotas and capacity as bars, each described in words too. */

import { N_, _, h } from './base.js';
import { flavorName, reasonParts, showNumber } from './sentences.js';

/** The four ways of being there without serving, with what each means. */
export const UNUSABLE = [
  [
    'free_wrong_shape',
    N_('Free, wrong shape'),
    N_('Free, but not in the shape that those who wait asked for.')
  ],
  [
    'free_quota_blocked',
    N_('Free, kept by quota'),
    N_('Free, but no quota lets those who wait have them.')
  ],
  ['held_not_used', N_('Held, not used'), N_('Held by a session that does not use them.')],
  [
    'held_preparing',
    N_('Held, getting ready'),
    N_('Held for a session that is still getting ready.')
  ]
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
  const label = segments.map(([, text, amount]) => `${text} ${showNumber(amount)}`).join(', ');
  return h(
    'div',
    { class: 'al-quota' },
    h(
      'div',
      { class: 'al-quota-head' },
      h('b', {}, `${tenant} · ${flavorName(quota.flavor)}`),
      h('span', { class: 'al-quiet' }, _('pool {pool}', { pool: quota.pool }))
    ),
    bar(
      segments.map(([name, , amount]) => [name, amount / whole]),
      label
    ),
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
      h('span', { class: 'al-quiet' }, _('guarantee {guarantee:n}', { guarantee: quota.guarantee }))
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

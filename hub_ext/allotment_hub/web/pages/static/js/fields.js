/** The fields of the form for a new session. */

import { _, button, h, show } from './base.js';
import { flavorName, showNumber, showSpan } from './sentences.js';
import { form, wish } from './wish.js';

const DURATIONS = ['1h', '2h', '4h', '8h', '12h', '1d'];

function field(id, label, input, hint = null) {
  return h(
    'div',
    { class: 'al-field' },
    h('label', { class: 'form-label', for: id }, label),
    input,
    hint ? h('div', { class: 'al-quiet al-small' }, hint) : null
  );
}

function select(id, choices, chosen, pick) {
  const element = h(
    'select',
    { id, class: 'form-select' },
    choices.map(([value, text]) => h('option', { value }, text))
  );
  element.value = chosen;
  element.addEventListener('change', () => {
    pick(element.value);
    form.changed();
  });
  return element;
}

export function tenantField(tenants) {
  const names = tenants.map(tenant => tenant.name);
  if (!names.includes(wish.tenant)) {
    wish.tenant = names[0] ?? null;
  }
  if (names.length < 2) {
    return null;
  }
  return field(
    'tenant',
    _('For which team'),
    select(
      'tenant',
      names.map(name => [name, name]),
      wish.tenant,
      value => {
        wish.tenant = value;
        wish.flavor = null;
        drawFlavors(form.model());
      }
    )
  );
}

export function countField() {
  const input = h('input', {
    id: 'gpus',
    class: 'form-control',
    type: 'number',
    min: '0.001',
    step: 'any',
    inputmode: 'decimal',
    value: showNumber(wish.gpus),
    required: true
  });
  input.addEventListener('input', () => {
    wish.gpus = Number(input.value);
    form.changed();
  });
  form.parts.count = input;
  const step = by => () => {
    const size = stepSize();
    const next = Math.round(((wish.gpus || 0) + by * size) * 1000) / 1000;
    wish.gpus = Math.max(size, next);
    input.value = showNumber(wish.gpus);
    form.changed();
  };
  return field(
    'gpus',
    _('How many GPUs'),
    h(
      'div',
      { class: 'al-stepper' },
      button('−', step(-1), { 'aria-label': _('One fewer') }),
      input,
      button('+', step(1), { 'aria-label': _('One more') })
    )
  );
}

/** One slot of the chosen flavor: a shared GPU is asked for in its form.parts. */
function stepSize() {
  const flavor = (form.model()?.capacity.flavors ?? []).find(row => row.flavor === wish.flavor);
  return flavor?.share > 0 && flavor.share < 1 ? flavor.share : 1;
}

export function durationField() {
  const known = DURATIONS.includes(wish.duration) || wish.duration === '';
  const custom = h('input', {
    id: 'duration-custom',
    class: 'form-control',
    placeholder: '90m',
    pattern: '[0-9]{1,12}[smhd]',
    'aria-label': _('How long, written as 90m, 4h or 2d'),
    value: known ? '' : wish.duration
  });
  custom.hidden = known;
  custom.addEventListener('input', () => {
    wish.duration = custom.value.trim();
    form.changed();
  });
  const choices = [
    ['', _('As usual for this kind of work')],
    ...DURATIONS.map(text => [text, showSpan(text)]),
    ['custom', _('Other …')]
  ];
  return field(
    'duration',
    _('How long'),
    h(
      'div',
      { class: 'al-inline' },
      select('duration', choices, known ? wish.duration : 'custom', value => {
        custom.hidden = value !== 'custom';
        wish.duration = value === 'custom' ? custom.value.trim() : value;
        if (value === 'custom') {
          custom.focus();
        }
      }),
      custom
    )
  );
}

export function moreFields(me) {
  const classes = classNames(me);
  return h(
    'details',
    { class: 'al-more', 'data-key': 'more' },
    h('summary', {}, _('More')),
    classes.length > 1
      ? field(
          'class',
          _('Kind of work'),
          select(
            'class',
            [['', _('Usual')], ...classes.map(name => [name, name])],
            wish.class,
            value => {
              wish.class = value;
            }
          )
        )
      : null,
    field(
      'interruptible',
      _('May it be interrupted?'),
      select(
        'interruptible',
        [
          ['', _('As usual for this kind of work')],
          ['stateless', _('Yes, at any time')],
          ['checkpoint', _('Yes, it goes on from a checkpoint')],
          ['no', _('No')]
        ],
        wish.interruptible,
        value => {
          wish.interruptible = value;
        }
      ),
      _('Work that cannot be interrupted does not borrow from other teams.')
    ),
    field(
      'start',
      _('When it is your turn'),
      select(
        'start',
        [
          ['present', _('Start if I am here, else hold it for a while')],
          ['always', _('Start in any case')]
        ],
        wish.start,
        value => {
          wish.start = value;
        }
      )
    )
  );
}

/** Classes of the pools that one of the person's teams has a quota in. */
function classNames(me) {
  const pools = new Set(
    (me.tenants ?? []).flatMap(tenant => (tenant.quotas ?? []).map(quota => quota.pool))
  );
  const names = (form.model()?.capacity.pools ?? [])
    .filter(pool => pools.has(pool.name))
    .flatMap(pool => pool.classes ?? []);
  return [...new Set(names)];
}

export function drawFlavors({ me, capacity }) {
  const tenant = (me.tenants ?? []).find(row => row.name === wish.tenant);
  const offers = new Map();
  for (const quota of tenant?.quotas ?? []) {
    offers.set(quota.flavor, quota);
  }
  if (wish.flavor !== null && !offers.has(wish.flavor)) {
    wish.flavor = null;
  }
  wish.flavor ??= [...offers.keys()][0] ?? null;
  show(
    form.parts.flavors,
    [...offers.values()].map(quota => flavorChoice(quota, capacity))
  );
}

function flavorChoice(quota, capacity) {
  const line = (capacity.pools ?? [])
    .find(pool => pool.name === quota.pool)
    ?.flavors?.find(row => row.flavor === quota.flavor);
  const known = (capacity.flavors ?? []).find(row => row.flavor === quota.flavor);
  const input = h('input', {
    type: 'radio',
    name: 'flavor',
    value: quota.flavor,
    id: `flavor-${quota.flavor}`,
    class: 'form-check-input',
    'data-key': `flavor-${quota.flavor}`
  });
  input.checked = wish.flavor === quota.flavor;
  input.addEventListener('change', () => {
    wish.flavor = quota.flavor;
    form.changed();
  });
  const facts = [
    known?.memory ? _('{memory:memory} of memory', { memory: known.memory }) : null,
    known?.sharing ? _('shared: parts of {share:n}', { share: known.share }) : null
  ].filter(Boolean);
  return h(
    'label',
    { class: 'al-flavor', for: input.id, title: quota.flavor },
    input,
    h(
      'span',
      {},
      h('b', {}, flavorName(quota.flavor)),
      facts.length ? h('small', {}, ` ${facts.join(' · ')}`) : null
    ),
    h(
      'span',
      { class: 'al-flavor-free' },
      line
        ? h('b', {}, _('{free:n} of {total:n} free', { free: line.free, total: line.in_service }))
        : _('none in service'),
      h(
        'small',
        {},
        _('your team: {free:n} of {guarantee:n} left', {
          free: quota.free,
          guarantee: quota.guarantee
        })
      )
    )
  );
}

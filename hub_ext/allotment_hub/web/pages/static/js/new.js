/**
 * Asking for a session: what is free now, and for each change of the wish what would be decided,
 * when it would start and what would start sooner. Nothing is asked for before the button.
 */

import {
  CallError,
  _,
  announce,
  button,
  call,
  complain,
  h,
  safeNext,
  segment,
  show,
  site,
  spanText,
  start,
  millisecondsTo,
  timeElement,
  escapedName
} from './base.js';
import { Live } from './live.js';
import {
  askText,
  basisChip,
  changeText,
  flavorName,
  newsLine,
  reasonBlocks,
  showNumber,
  showSpan,
  whenText
} from './parts.js';

const DEBOUNCE = 250;
const DURATIONS = ['1h', '2h', '4h', '8h', '12h', '1d'];

const query = JSON.parse(document.body.dataset.query || '{}');
const content = document.getElementById('content');
const server = query.server ?? '';
const wish = {
  tenant: query.tenant ?? null,
  flavor: query.flavor ?? null,
  gpus: Number(query.gpus) > 0 ? Number(query.gpus) : 1,
  duration: query.duration ?? '',
  class: query.class ?? '',
  interruptible: '',
  start: 'present',
  nodes: 1
};
let outcome = null;
let shown = '';
let previewing = null;
let asked = 0;
let key = null;
const parts = {};

async function load() {
  const [me, capacity] = await Promise.all([call('GET', 'me'), call('GET', 'capacity')]);
  return { me, capacity };
}

function draw(model, news) {
  content.removeAttribute('aria-busy');
  if (!model) {
    show(content, h('p', {}, newsLine(news)));
    return;
  }
  const first = !parts.form;
  if (first) {
    build(model);
  }
  drawFlavors(model);
  if (first) {
    preview();
  }
  show(parts.news, newsLine(news));
}

function build({ me }) {
  parts.news = h('div', {});
  parts.flavors = h('div', { class: 'al-flavors' });
  parts.outcome = h('div', { class: 'al-outcome', 'aria-live': 'polite', 'aria-busy': 'true' });
  const submit = h('button', { type: 'submit', class: 'btn btn-primary btn-lg' }, _('Start'));
  parts.submit = submit;
  parts.form = h(
    'form',
    { class: 'al-form' },
    tenantField(me.tenants ?? []),
    h('fieldset', { class: 'al-field' }, h('legend', {}, _('Which GPU')), parts.flavors),
    h('div', { class: 'al-pair' }, countField(), durationField()),
    moreFields(me),
    h(
      'div',
      { class: 'al-actions al-submit' },
      submit,
      site.hub ? h('a', { class: 'btn btn-outline-secondary', href: cpuAddress() }, _('Start without a GPU')) : null
    )
  );
  parts.form.addEventListener('submit', event => {
    event.preventDefault();
    ask();
  });
  show(
    content,
    h(
      'header',
      { class: 'al-title' },
      h('h1', {}, server ? _('New session “{server}”', { server }) : _('New session')),
      parts.news
    ),
    (me.tenants ?? []).length
      ? h(
          'div',
          { class: 'al-columns' },
          parts.form,
          h('aside', { class: 'al-card', 'aria-label': _('What would happen') }, h('h2', {}, _('If you ask now')), parts.outcome)
        )
      : h(
          'section',
          { class: 'al-card' },
          h('p', {}, _('You belong to no team that has a quota here. Ask whoever runs this hub for one.')),
          site.hub ? h('a', { class: 'btn btn-primary', href: cpuAddress() }, _('Start without a GPU')) : null
        )
  );
}

/** The hub's own form starts a session without GPUs; the governor has no part in it. */
function cpuAddress() {
  const path = `${site.hub}spawn/${escapedName(site.user)}${server ? `/${encodeURIComponent(server)}` : ''}`;
  const next = safeNext(query.next);
  return next ? `${path}?next=${encodeURIComponent(next)}` : path;
}

// --- fields

function changed() {
  key = null;
  complain(null);
  clearTimeout(previewing);
  previewing = setTimeout(() => preview(), DEBOUNCE);
}

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
    changed();
  });
  return element;
}

function tenantField(tenants) {
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
    select('tenant', names.map(name => [name, name]), wish.tenant, value => {
      wish.tenant = value;
      wish.flavor = null;
      drawFlavors(live.model);
    })
  );
}

function countField() {
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
    changed();
  });
  parts.count = input;
  const step = by => () => {
    const size = stepSize();
    const next = Math.round(((wish.gpus || 0) + by * size) * 1000) / 1000;
    wish.gpus = Math.max(size, next);
    input.value = showNumber(wish.gpus);
    changed();
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

/** One slot of the chosen flavor: a shared GPU is asked for in its parts. */
function stepSize() {
  const flavor = (live.model?.capacity.flavors ?? []).find(row => row.flavor === wish.flavor);
  return flavor?.share > 0 && flavor.share < 1 ? flavor.share : 1;
}

function durationField() {
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
    changed();
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

function moreFields(me) {
  const classes = classNames(me);
  return h(
    'details',
    { class: 'al-more', 'data-key': 'more' },
    h('summary', {}, _('More')),
    classes.length > 1
      ? field(
          'class',
          _('Kind of work'),
          select('class', [['', _('Usual')], ...classes.map(name => [name, name])], wish.class, value => {
            wish.class = value;
          })
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
  const names = (live.model?.capacity.pools ?? [])
    .filter(pool => pools.has(pool.name))
    .flatMap(pool => pool.classes ?? []);
  return [...new Set(names)];
}

function drawFlavors({ me, capacity }) {
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
    parts.flavors,
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
    changed();
  });
  const facts = [
    known?.memory ? _('{memory:memory} of memory', { memory: known.memory }) : null,
    known?.sharing ? _('shared: parts of {share:n}', { share: known.share }) : null
  ].filter(Boolean);
  return h(
    'label',
    { class: 'al-flavor', for: input.id, title: quota.flavor },
    input,
    h('span', {}, h('b', {}, flavorName(quota.flavor)), facts.length ? h('small', {}, ` ${facts.join(' · ')}`) : null),
    h(
      'span',
      { class: 'al-flavor-free' },
      line ? h('b', {}, _('{free:n} of {total:n} free', { free: line.free, total: line.in_service })) : _('none in service'),
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

// --- what would be decided

function wants() {
  const body = { kind: 'session', gpus: wish.gpus };
  if (wish.nodes > 1) {
    body.nodes = wish.nodes;
  }
  for (const name of ['tenant', 'flavor', 'duration', 'class', 'interruptible']) {
    if (wish[name]) {
      body[name] = wish[name];
    }
  }
  body.start = wish.start;
  body.server = server;
  return body;
}

/** What the outcome says, without what changes by the mere passing of time. */
function gist(answer) {
  return JSON.stringify([
    site.lang,
    wants(),
    answer.decision,
    answer.position,
    answer.in_line,
    answer.forecast?.expected_start?.slice(0, 16),
    answer.lease && [answer.lease.basis, answer.lease.lenders, answer.lease.term],
    (answer.reasons ?? []).map(reason => [reason.code, reason.evidence, reason.until]),
    (answer.alternatives ?? []).map(option => option.change)
  ]);
}

/** Ask what would be decided. `quietly`: nobody has changed anything, only time has passed. */
async function preview(quietly = false) {
  const mine = ++asked;
  if (!(wish.gpus > 0)) {
    outcome = null;
    shown = '';
    show(parts.outcome, h('p', {}, _('Write how many GPUs, such as 1 or 2.')));
    return;
  }
  if (!quietly) {
    parts.outcome.setAttribute('aria-busy', 'true');
  }
  try {
    const answer = await call('POST', 'requests/preview', { body: wants() });
    if (mine !== asked) {
      return; // an older question's answer
    }
    outcome = answer;
    if (gist(answer) !== shown) {
      // Drawn only when it says something else: a screen reader reads out what is drawn.
      shown = gist(answer);
      show(parts.outcome, outcomeView(answer));
    }
  } catch (error) {
    if (!(error instanceof CallError)) {
      throw error;
    }
    if (mine === asked && !(quietly && error.passing)) {
      outcome = null;
      shown = '';
      show(parts.outcome, h('p', { class: 'al-bad' }, error.message));
    }
  } finally {
    if (mine === asked) {
      parts.outcome.setAttribute('aria-busy', 'false');
      parts.submit.textContent =
        outcome?.decision === 'queued' ? _('Join the line') : _('Start');
      parts.submit.disabled = outcome?.decision === 'rejected';
    }
  }
}

function outcomeView(answer) {
  const views = { granted: wouldStart, queued: wouldWait, rejected: wouldBeRefused };
  return (views[answer.decision] ?? wouldWait)(answer);
}

function wouldStart(answer) {
  const lease = answer.lease ?? {};
  return [
    h('p', { class: 'al-verdict al-verdict-go' }, h('b', {}, _('Starts now'))),
    h('p', {}, `${askText(answer.asked)} `, basisChip(lease)),
    lease.basis === 'borrowed'
      ? h(
          'p',
          { class: 'al-quiet' },
          _('Borrowed GPUs go back when their owners ask, with notice before.'),
          ' ',
          lease.renewals_left > 0
            ? _('The term is {term:duration} and can be renewed {n:n} times.', {
                term: lease.term,
                n: lease.renewals_left
              })
            : _('The term is {term:duration}.', { term: lease.term })
        )
      : lease.term
        ? h('p', { class: 'al-quiet' }, _('Yours for {term:duration}.', { term: lease.term }))
        : null
  ];
}

function wouldWait(answer) {
  const { expected_start: expected, latest_start: latest } = answer.forecast ?? {};
  const left = millisecondsTo(expected);
  return [
    h(
      'p',
      { class: 'al-verdict al-verdict-wait' },
      h('b', {}, _('Waits in line')),
      answer.position
        ? ` · ${
            answer.in_line
              ? _('place {position:n} of {total:n}', {
                  position: answer.position,
                  total: answer.in_line
                })
              : _('place {position:n}', { position: answer.position })
          }`
        : ''
    ),
    h(
      'p',
      {},
      expected
        ? [
            latest === expected ? _('Starts at the latest at') : _('Starts at about'),
            ' ',
            h('b', {}, timeElement(expected)),
            left > 0 ? ` (${_('in {span}', { span: spanText(left) })})` : '',
            latest && latest !== expected
              ? `, ${_('at the latest {at:time}', { at: latest })}`
              : ''
          ]
        : _('When it starts is not known yet.')
    ),
    reasonBlocks(answer.reasons),
    alternatives(answer)
  ];
}

function wouldBeRefused(answer) {
  return [
    h('p', { class: 'al-verdict al-verdict-no' }, h('b', {}, _('Cannot start like this'))),
    reasonBlocks(answer.reasons),
    alternatives(answer)
  ];
}

function alternatives(answer) {
  const helps = (answer.reasons ?? []).flatMap(reason => reason.helps ?? []);
  const rows = new Map();
  for (const option of [...(answer.alternatives ?? []), ...helps]) {
    if (option.change && Object.keys(option.change).length) {
      const name = JSON.stringify(option.change);
      rows.set(name, rows.get(name) ?? option);
    }
  }
  if (!rows.size) {
    return null;
  }
  return [
    h('h3', {}, _('What could start sooner')),
    h(
      'ul',
      { class: 'al-options-list' },
      [...rows.values()].map(option => {
        const text = changeText(option.change, answer.asked);
        return h(
          'li',
          {},
          h('span', {}, h('b', {}, text), ' ', h('span', { class: 'al-quiet' }, whenText(option.forecast))),
          button(_('Choose this'), () => choose(option.change), {
            'aria-label': _('Choose this: {text}', { text }),
            key: `choose-${text}`
          })
        );
      })
    )
  ];
}

/** Take an alternative into the form; nothing is asked for yet. */
function choose(change) {
  for (const [name, value] of Object.entries(change)) {
    if (name in wish) {
      wish[name] = value;
    }
  }
  parts.count.value = showNumber(wish.gpus);
  for (const name of ['tenant', 'class', 'interruptible']) {
    const element = document.getElementById(name);
    if (element && change[name]) {
      element.value = change[name];
    }
  }
  drawFlavors(live.model);
  changed();
  announce(_('Chosen: {text}', { text: changeText(change, wish) }));
}

async function ask() {
  if (parts.submit.getAttribute('aria-disabled') === 'true') {
    return;
  }
  parts.submit.setAttribute('aria-disabled', 'true');
  complain(null);
  try {
    // The same key until the wish changes: pressing twice, or again after a lost answer, asks once.
    key ??= crypto.randomUUID?.() ?? String(Math.random()).slice(2) + Date.now();
    const request = await call('POST', 'requests', {
      body: wants(),
      headers: { 'Idempotency-Key': key }
    });
    const next = safeNext(query.next);
    location.assign(
      `${site.prefix}waiting/${segment(request.id)}?go=1${next ? `&next=${encodeURIComponent(next)}` : ''}`
    );
  } catch (error) {
    complain(error);
  } finally {
    parts.submit.removeAttribute('aria-disabled');
  }
}

await start();
const live = new Live({
  load: async () => {
    const model = await load();
    if (parts.form) {
      preview(true); // what is free may have changed, and with it what would be decided
    }
    return model;
  },
  draw
});
live.start();

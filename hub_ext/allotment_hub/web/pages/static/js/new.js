/**
 * Asking for a session: what is free now, and for each change of the wish what would be decided,
 * when it would start and what would start sooner. Nothing is asked for before the button.
 */

import {
  CallError,
  _,
  call,
  complain,
  escapedName,
  h,
  safeNext,
  segment,
  show,
  site,
  start
} from './base.js';
import { Live } from './live.js';
import { newsLine } from './parts.js';
import { form, query, server, wants, wish } from './wish.js';
import { countField, drawFlavors, durationField, moreFields, tenantField } from './fields.js';
import { gist, outcomeView } from './outcome.js';

const DEBOUNCE = 250;

const content = document.getElementById('content');
const { parts } = form;
let outcome = null;
let shown = '';
let previewing = null;
let asked = 0;
let key = null;

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
      site.hub
        ? h(
            'a',
            { class: 'btn btn-outline-secondary', href: cpuAddress() },
            _('Start without a GPU')
          )
        : null
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
          h(
            'aside',
            { class: 'al-card', 'aria-label': _('What would happen') },
            h('h2', {}, _('If you ask now')),
            parts.outcome
          )
        )
      : h(
          'section',
          { class: 'al-card' },
          h(
            'p',
            {},
            _('You belong to no team that has a quota here. Ask whoever runs this hub for one.')
          ),
          site.hub
            ? h('a', { class: 'btn btn-primary', href: cpuAddress() }, _('Start without a GPU'))
            : null
        )
  );
}

/** The hub's own form starts a session without GPUs; the governor has no part in it. */
function cpuAddress() {
  const path = `${site.hub}spawn/${escapedName(site.user)}${server ? `/${encodeURIComponent(server)}` : ''}`;
  const next = safeNext(query.next);
  return next ? `${path}?next=${encodeURIComponent(next)}` : path;
}

function changed() {
  key = null;
  complain(null);
  clearTimeout(previewing);
  previewing = setTimeout(() => preview(), DEBOUNCE);
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
      parts.submit.textContent = outcome?.decision === 'queued' ? _('Join the line') : _('Start');
      parts.submit.disabled = outcome?.decision === 'rejected';
    }
  }
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
form.model = () => live.model;
form.changed = changed;
live.start();

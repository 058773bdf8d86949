/**
 * The waiting room of one request: the place, why it waits, when it starts, what would start
 * sooner, and the way out. Opens the session when it is there.
 */

import {
  CallError,
  N_,
  _,
  announce,
  button,
  call,
  clock,
  complain,
  confirmButton,
  countdownText,
  h,
  millisecondsTo,
  rows,
  safeNext,
  segment,
  serverAddress,
  show,
  site,
  spanText,
  start,
  timeElement
} from './base.js';
import { changePanel } from './change.js';
import { Live } from './live.js';
import { Seen } from './memory.js';
import {
  askText,
  basisChip,
  changeText,
  leaseText,
  newsLine,
  placesText,
  reasonBlock,
  reasonBlocks,
  reasonWords,
  reclaimBlock,
  triggerText,
  whenText
} from './parts.js';
import { say } from './sentences.js';

const PRESENT_EVERY = 20_000;
const MOST_BARS = 16;

const id = document.body.dataset.id;
const query = JSON.parse(document.body.dataset.query || '{}');
const content = document.getElementById('content');
const seen = new Seen(id);
let opened = false;
let drawn = null;
let connected = false;
let panel = null; // the open form for changes: one element, so that redrawing keeps what is typed

async function load() {
  const request = await call('GET', `requests/${segment(id)}`);
  request.history = await historyOf(request);
  const over = ['done', 'cancelled', 'expired'].includes(request.state);
  const lease =
    request.lease && (request.state === 'granted' || over)
      ? await call('GET', `leases/${segment(request.lease)}`).catch(leaseMissing)
      : null;
  return { request, lease };
}

const past = { known: '', steps: [] };

/** The steps of the request: as they come, else from the audit, asked again only after a change. */
async function historyOf(request) {
  if (request.history?.length) {
    return request.history;
  }
  const codes = (request.reasons ?? []).map(reason => reason.code);
  const key = JSON.stringify([request.state, codes, request.asked, request.lease]);
  if (past.known !== key) {
    const answer = await call('GET', `audit?subject=${segment(id)}&limit=50`);
    past.steps = rows(answer, 'audit')
      .reverse()
      .map(({ at, what, why }) => ({ at, what, text: why }));
    past.known = key;
  }
  return past.steps;
}

function leaseMissing(error) {
  if (error instanceof CallError && error.status === 404) {
    return null;
  }
  throw error;
}

function concerns(event, page) {
  const row = event.data ?? {};
  if (event.name === 'place' && row.id === id) {
    const request = page.model?.request;
    if (request?.state === 'queued' && request.position !== row.position) {
      Object.assign(request, { position: row.position, ahead: row.ahead, in_line: row.in_line });
      return 'later'; // the reasons change with the place
    }
    return false;
  }
  if (['request', 'lease'].includes(event.name)) {
    return [row.id, row.request].includes(id);
  }
  return event.name === 'capacity' ? 'later' : false;
}

// --- what is shown, by state

const views = {
  queued: queuedView,
  parked: parkedView,
  granted: grantedView,
  rejected: rejectedView,
  cancelled: endedView,
  expired: endedView,
  done: endedView
};

function draw(model, news) {
  content.removeAttribute('aria-busy');
  if (!model) {
    drawNothing(news);
    return;
  }
  const { request, lease } = model;
  const view = views[request.state] ?? endedView;
  const moved =
    request.state === 'queued' && seen.note(request.position, clock.now());
  show(
    content,
    h(
      'section',
      { class: 'al-card al-narrow al-room', 'data-state': request.state, 'data-lease-state': lease?.state ?? '' },
      view(request, lease),
      h('div', { class: 'al-room-news' }, newsLine(news))
    )
  );
  tell(request, lease, moved);
  if (news.state === 'live' && !connected) {
    // Whoever opens the page, or is back after an interruption, is here at once.
    present();
  }
  connected = news.state === 'live';
  if (news.state === 'live' || news.state === 'asking') {
    maybeOpen(request, lease);
  }
  drawn = request.state;
}

function drawNothing(news) {
  const missing = news.error?.status === 404;
  show(
    content,
    h(
      'section',
      { class: 'al-card al-narrow' },
      h('h1', {}, missing ? _('There is no such request.') : _('Waiting room')),
      missing
        ? h('p', {}, _('It may belong to somebody else, or its address is not complete.'))
        : newsLine(news),
      h('p', {}, h('a', { class: 'btn btn-primary', href: site.prefix }, _('To the overview')))
    )
  );
}

function title(text, request) {
  const team = request.tenant ? _(', team {tenant}', { tenant: request.tenant }) : '';
  return h(
    'h1',
    {},
    text + _(': ') + askText(request.asked) + team,
    request.server ? h('span', { class: 'al-quiet' }, ` · ${request.server}`) : null
  );
}

function queuedView(request) {
  return [
    title(_('Your session is in line'), request),
    h('div', { class: 'al-hero' }, placeBlock(request), startBlock(request)),
    ladder(request),
    reasonBlocks(request.reasons),
    alternatives(request),
    panel,
    history(request),
    footer(request)
  ];
}

function placeBlock(request) {
  return h(
    'div',
    { class: 'al-place' },
    h('span', { class: 'visually-hidden' }, placeText(request)),
    h(
      'span',
      { 'aria-hidden': 'true' },
      h('b', {}, request.position ?? '?'),
      request.in_line
        ? h('small', {}, ` ${_('of {total:n} in line', { total: request.in_line })}`)
        : null
    )
  );
}

function placeText(request) {
  return request.in_line
    ? _('You are number {position:n} of {total:n} in line.', {
        position: request.position,
        total: request.in_line
      })
    : _('You are number {position:n} in line.', { position: request.position });
}

// What a forecast rests on, as the governor words it.
const BASES = [
  N_('the devices asked back return by then'),
  N_('devices are kept for it until then'),
  N_('the terms of the leases in front'),
  N_('the term of the lease that ends next'),
  N_('how long leases like those in front really last'),
  N_('the longest terms of all in front')
];

function startBlock(request) {
  const { expected_start: expected, latest_start: latest, basis } = request.forecast ?? {};
  if (!expected && !latest) {
    return h(
      'div',
      { class: 'al-eta' },
      h('span', { class: 'al-quiet' }, _('When it starts is not known yet.'))
    );
  }
  const certain = !expected || expected === latest;
  const left = millisecondsTo(expected ?? latest);
  const resting = basis
    ? _('this rests on: {basis}', { basis: BASES.includes(basis) ? _(basis) : basis })
    : null;
  return h(
    'div',
    { class: 'al-eta' },
    h('span', { class: 'al-quiet' }, certain ? _('starts at the latest at') : _('starts at about')),
    h('b', {}, timeElement(expected ?? latest)),
    left > 0 ? h('span', { class: 'al-quiet' }, _('in {span}', { span: spanText(left) })) : null,
    !certain && latest
      ? h(
          'span',
          { class: 'al-quiet' },
          _('at the latest {at:time}, when the leases in front end', { at: latest })
        )
      : null,
    resting ? h('span', { class: 'al-quiet al-small al-basis' }, resting) : null
  );
}

/** One bar for each place of the line as it was: who has started, who is in front, and you. */
function ladder(request) {
  const place = request.position;
  const first = Math.max(seen.first, place ?? 0);
  if (!place || first < 2) {
    return null;
  }
  const gone = first - place;
  const bars =
    first <= MOST_BARS
      ? Array.from({ length: first }, (unused, index) =>
          h('i', { class: index < gone ? 'done' : index === first - 1 ? 'me' : '' })
        )
      : [
          h('i', { class: 'done', style: { 'flex-grow': String(gone) } }),
          h('i', { style: { 'flex-grow': String(Math.max(place - 1, 0.01)) } }),
          h('i', { class: 'me', style: { 'flex-grow': '1' } })
        ];
  return [
    h('div', { class: 'al-ladder', 'aria-hidden': 'true' }, bars),
    h(
      'p',
      { class: 'al-quiet al-small' },
      gone > 0
        ? _('{gone:n} of those in front {gone:plural/has/have} left the line since you came.', { gone })
        : _('Asked at {at:time}.', { at: request.asked_at ?? request.submitted_at })
    )
  ];
}

/** What would start sooner, each with one button to take it. */
function alternatives(request) {
  const helps = (request.reasons ?? []).flatMap(reason => reason.helps ?? []);
  const known = new Map();
  for (const help of helps) {
    if (help.change && Object.keys(help.change).length) {
      known.set(JSON.stringify(help.change), help);
    }
  }
  const told = helps.filter(help => !help.change || !Object.keys(help.change).length);
  return [
    known.size
      ? h(
          'table',
          { class: 'al-options' },
          h('caption', { class: 'visually-hidden' }, _('What could start sooner')),
          h(
            'tbody',
            {},
            [...known.values()].map(help => {
              const text = changeText(help.change, request.asked);
              return h(
                'tr',
                {},
                h('th', { scope: 'row' }, text),
                h('td', {}, whenText(help.forecast)),
                h(
                  'td',
                  {},
                  button(_('Take this instead'), () => amend(help.change), {
                    'aria-label': _('Take this instead: {text}', { text }),
                    key: `take-${text}`
                  })
                )
              );
            })
          )
        )
      : null,
    told.length
      ? h(
          'p',
          { class: 'al-quiet' },
          _('What would help:'),
          ' ',
          told.map(help => help.text).join(' · ')
        )
      : null
  ];
}

async function amend(change) {
  complain(null);
  await call('PATCH', `requests/${segment(id)}`, { body: change });
  await live.refresh();
}

function history(request) {
  // Newest first; of one moment, what came later in the record.
  const steps = [...(request.history ?? []), ...seen.steps()]
    .reverse()
    .sort((a, b) => Date.parse(b.at) - Date.parse(a.at));
  const passes = request.passed_by ?? [];
  if (!steps.length && !passes.length) {
    return null;
  }
  return [
    h('h2', { class: 'al-small-title' }, _('What has happened')),
    h(
      'ol',
      { class: 'al-history' },
      steps.map(step => h('li', {}, timeElement(step.at), h('span', {}, stepText(step)))),
      passes.map(passed =>
        h(
          'li',
          {},
          h('span', { class: 'al-when' }, '↷'),
          h('span', {}, passText(passed))
        )
      )
    )
  ];
}

function stepText(step) {
  if (step.what === 'place') {
    return _('place {from:n} → {to:n}', { from: step.from, to: step.to });
  }
  const key = step.what.includes('.') ? step.what : `request.${step.what}`;
  const reason = step.text && /^[A-Z][A-Za-z]+$/.test(step.text);
  const text = say(`steps.${key}`);
  if (key.startsWith('claim.') || /^(guarantee|borrowing):/.test(step.text)) {
    return text; // the rule or the demand behind it stands with the reason
  }
  if (reason) {
    return text + _(': ') + reasonWords({ code: step.text, evidence: step.evidence }).head;
  }
  return step.text ? text + _(': ') + step.text : text;
}

function passText(passed) {
  const times = passed.times > 1 ? ` (${passed.times}×)` : '';
  return passed.request
    ? _('passed by {request}: {why}', passed) + times
    : _('passed by another request: {why}', passed) + times;
}

function footer(request) {
  const note =
    request.asked?.start === 'always'
      ? _('You may close this page: your place stays, and the session starts when it is your turn.')
      : _(
          'You may close this page: your place stays. When it is your turn the session starts if you are here, else it is held for you for a while.'
        );
  return h(
    'footer',
    {},
    h('span', {}, note),
    h(
      'div',
      { class: 'al-actions' },
      panel ? null : button(_('Change'), () => openPanel(request)),
      leaveButton(_('Leave the line'), _('Leave the line? Your place is lost.'))
    )
  );
}

function openPanel(request) {
  const close = () => {
    panel = null;
    draw(live.model, live.news);
  };
  panel = changePanel(request, {
    cancel: close,
    done: async () => {
      panel = null;
      await live.refresh();
      close();
    }
  });
  draw(live.model, live.news);
  panel.querySelector('input').focus();
}

function leaveButton(label, question) {
  return confirmButton(label, question, async () => {
    await call('DELETE', `requests/${segment(id)}`);
    await live.refresh();
  });
}

function parkedView(request) {
  return [
    title(_('Your place is parked'), request),
    h(
      'p',
      {},
      _('It was your turn while nobody was here, so the next in line got the GPUs. Your age in line is kept: rejoin, and you are near the front again.')
    ),
    (request.reasons ?? []).map(reason => reasonBlock(reason)),
    h(
      'div',
      { class: 'al-actions' },
      button(
        _('Rejoin the line'),
        async () => {
          await call('POST', `requests/${segment(id)}/claim`, { body: {} });
          await live.refresh();
        },
        { class: 'btn btn-primary' }
      ),
      leaveButton(_('Leave the line'), _('Leave the line? Your place is lost.'))
    ),
    history(request)
  ];
}

function grantedView(request, lease) {
  const state = lease?.state ?? 'granted';
  if (state === 'granted') {
    const left = millisecondsTo(lease?.held_until);
    return left !== null && left > 0 ? claimView(request, lease) : startingView(request, lease, 0);
  }
  if (state === 'preparing') {
    return startingView(request, lease, 1);
  }
  if (state === 'stopping') {
    return [
      title(_('The session is being stopped'), request),
      reclaimBlock(lease),
      h('p', {}, _('Its GPUs are free when nothing runs on them any more.'))
    ];
  }
  return runningView(request, lease);
}

/** Held for who is not seen to be here: one button, and a countdown by the server's clock. */
function claimView(request, lease) {
  return [
    title(_('It is your turn'), request),
    h(
      'p',
      { class: 'al-hero-line' },
      _('The GPUs are held for you for'),
      ' ',
      h('b', { class: 'al-countdown', 'data-until': lease.held_until }, countdownText(millisecondsTo(lease.held_until)))
    ),
    h('p', { class: 'al-quiet' }, _('After that the next in line gets them, and your place is parked with its age.')),
    leaseFacts(lease),
    h(
      'div',
      { class: 'al-actions' },
      button(
        _('Start now'),
        async () => {
          await call('POST', `requests/${segment(id)}/claim`, { body: {} });
          await live.refresh();
        },
        { class: 'btn btn-primary' }
      ),
      leaveButton(_('Give it up'), _('Give these GPUs up?'))
    )
  ];
}

function startingView(request, lease, step) {
  const steps = [_('GPUs reserved'), _('Session getting ready'), _('Session open')];
  return [
    title(step ? _('The session is getting ready') : _('The session is about to start'), request),
    h(
      'ol',
      { class: 'al-steps' },
      steps.map((text, index) =>
        h(
          'li',
          {
            class: index < step + 1 ? 'done' : index === step + 1 ? 'now' : '',
            'aria-current': index === step + 1 ? 'step' : null
          },
          text
        )
      )
    ),
    h('p', { class: 'al-quiet' }, _('This page opens the session by itself. You may also leave; it starts all the same.')),
    request.start_slot
      ? h('p', {}, _('Several sessions start at once; yours is number {n:n} to be started.', { n: request.start_slot }))
      : null,
    (request.reasons ?? []).filter(reason => reason.category === 'preparing' || reason.category === 'backend').map(reason => reasonBlock(reason)),
    lease ? leaseFacts(lease) : null,
    h('div', { class: 'al-actions' }, leaveButton(_('Stop the start'), _('Stop it and give the GPUs back?')))
  ];
}

function runningView(request, lease) {
  return [
    title(_('Your session is running'), request),
    reclaimBlock(lease),
    leaseFacts(lease),
    h(
      'div',
      { class: 'al-actions' },
      request.user === site.user && site.hub
        ? h('a', { class: 'btn btn-primary', href: sessionAddress(request), 'data-key': 'open' }, _('Open the session'))
        : null,
      h('a', { class: 'btn btn-outline-secondary', href: site.prefix }, _('To the overview'))
    )
  ];
}

function leaseFacts(lease) {
  return h(
    'p',
    { class: 'al-facts-line' },
    `${leaseText(lease)} · ${placesText(lease)} `,
    basisChip(lease),
    lease.term_ends_at && lease.active_at
      ? h('span', { class: 'al-quiet' }, ` ${_('term ends {at:time}', { at: lease.term_ends_at })}`)
      : null
  );
}

function rejectedView(request) {
  return [
    title(_('This request cannot start'), request),
    reasonBlocks(request.reasons),
    h('p', { class: 'al-quiet' }, _('It is not in line, because waiting would not help.')),
    h('div', { class: 'al-actions' }, againLink(request))
  ];
}

function endedView(request, lease) {
  const texts = {
    cancelled: _('You left the line'),
    expired: _('This request has expired'),
    done: _('This session has ended')
  };
  const trigger = lease?.reclaim?.trigger;
  return [
    title(texts[request.state] ?? request.state, request),
    trigger ? h('p', {}, triggerText(trigger)) : null,
    h(
      'div',
      { class: 'al-actions' },
      againLink(request),
      lease
        ? h('a', { class: 'btn btn-outline-secondary', href: `${site.prefix}ended/${segment(lease.id)}` }, _('What happened'))
        : null
    ),
    history(request)
  ];
}

function againLink(request) {
  const values = new URLSearchParams();
  if (request.server) {
    values.set('server', request.server);
  }
  for (const key of ['gpus', 'flavor', 'duration']) {
    if (request.asked?.[key]) {
      values.set(key, request.asked[key]);
    }
  }
  return h('a', { class: 'btn btn-primary', href: `${site.prefix}new?${values}` }, _('Ask again'));
}

// --- beside the picture: titles, announcements, presence, opening

function tell(request, lease, moved) {
  const turn = request.state === 'granted';
  const place = request.state === 'queued' && request.position;
  document.title = turn
    ? `▶ ${_('Your turn')} · Allotment`
    : place
      ? `${place} · ${_('Waiting room')} · Allotment`
      : `${_('Waiting room')} · Allotment`;
  if (moved) {
    announce(placeText(request));
  } else if (drawn && drawn !== request.state) {
    announce(content.querySelector('h1')?.textContent ?? '');
  }
}

function sessionAddress(request) {
  return safeNext(query.next) ?? serverAddress(request.user, request.server);
}

/** Open the session once, when it has come up before the reader's eyes. */
function maybeOpen(request, lease) {
  const up = lease && ['active', 'noticed'].includes(lease.state);
  const watched = drawn !== null || query.go === '1';
  if (opened || !up || !watched || request.user !== site.user || !site.hub) {
    return;
  }
  opened = true;
  announce(_('Your session is running; it opens now.'));
  // The waiting room must not lie behind the back button: it would lead here again.
  location.replace(sessionAddress(request));
}

/** Say that somebody is looking: only while the page is really seen. */
async function present() {
  const state = live.model?.request.state;
  const own = live.model?.request.user === site.user;
  if (!document.hidden && own && ['queued', 'granted'].includes(state)) {
    try {
      await call('POST', `requests/${segment(id)}/presence`, { body: {} });
    } catch (error) {
      if (!(error instanceof CallError)) {
        throw error;
      }
      // A missed one is made up for by the next; the line at the bottom tells of the connection.
    }
  }
}

function tick() {
  for (const element of content.querySelectorAll('[data-until]')) {
    const left = millisecondsTo(element.dataset.until);
    if (left !== null) {
      element.textContent = countdownText(left);
      if (left <= 0 && left > -1500) {
        live.refresh();
      }
    }
  }
}

await start();
const live = new Live({ load, draw, wants: concerns }).start();
setInterval(tick, 1000);
setInterval(present, PRESENT_EVERY);
document.addEventListener('visibilitychange', present);

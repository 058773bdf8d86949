/**
 * The waiting room of one request: the place, why it waits, when it starts, what would start
 * sooner, and the way out. Opens the session when it is there.
 */

import {
  CallError,
  _,
  announce,
  call,
  clock,
  countdownText,
  h,
  millisecondsTo,
  rows,
  segment,
  show,
  site,
  start
} from './base.js';
import { Live } from './live.js';
import { newsLine } from './parts.js';
import { address, room } from './room.js';
import { placeText, queuedView } from './queued.js';
import { endedView, grantedView, parkedView, rejectedView, sessionAddress } from './turns.js';

const PRESENT_EVERY = 20_000;

const content = document.getElementById('content');
let opened = false;
let drawn = null;
let connected = false;
let waited = false; // the session was seen not to be up yet

async function load() {
  const request = await call('GET', address());
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
    const answer = await call('GET', `audit?subject=${segment(room.id)}&limit=50`);
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
  if (event.name === 'place' && row.id === room.id) {
    const request = page.model?.request;
    if (request?.state === 'queued' && request.position !== row.position) {
      Object.assign(request, { position: row.position, ahead: row.ahead, in_line: row.in_line });
      return 'later'; // the reasons change with the place
    }
    return false;
  }
  if (['request', 'lease'].includes(event.name)) {
    return [row.id, row.request].includes(room.id);
  }
  return event.name === 'capacity' ? 'later' : false;
}

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
  const moved = request.state === 'queued' && room.seen.note(request.position, clock.now());
  show(
    content,
    h(
      'section',
      {
        class: 'al-card al-narrow al-room',
        'data-state': request.state,
        'data-lease-state': lease?.state ?? ''
      },
      view(request, lease),
      h('div', { class: 'al-room-news' }, newsLine(news))
    )
  );
  tell(request, lease, moved);
  const reached = ['live', 'asking'].includes(news.state);
  if (reached && !connected) {
    // Whoever opens the page, or is back after an interruption, is here at once.
    present();
  }
  connected = reached;
  if (reached) {
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

/** Open the session once, when it has come up before the reader's eyes. */
function maybeOpen(request, lease) {
  const up = lease && ['active', 'noticed'].includes(lease.state);
  waited ||= !up;
  if (
    opened ||
    !up ||
    !(waited || room.query.go === '1') ||
    request.user !== site.user ||
    !site.hub
  ) {
    return;
  }
  opened = true;
  announce(_('Your session is running; it opens now.'));
  // The waiting room must not lie behind the back button: it would lead here again.
  location.replace(sessionAddress(request));
}

/** Say that somebody is looking: only while the page is really seen. */
async function present() {
  const state = room.live.model?.request.state;
  const own = room.live.model?.request.user === site.user;
  if (!document.hidden && own && ['queued', 'granted'].includes(state)) {
    try {
      await call('POST', address('/presence'), { body: {} });
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
        room.live.refresh();
      }
    }
  }
}

await start();
room.live = new Live({ load, draw, wants: concerns }).start();
setInterval(tick, 1000);
setInterval(present, PRESENT_EVERY);
document.addEventListener('visibilitychange', present);

/** The views of a request that does not wait (any more): its turn, its session, its end. */

import {
  _,
  button,
  call,
  countdownText,
  h,
  millisecondsTo,
  safeNext,
  segment,
  serverAddress,
  site
} from './base.js';
import { basisChip, reasonBlock, reasonBlocks, reclaimBlock } from './parts.js';
import { leaseText, placesText, triggerText } from './wording.js';
import { address, history, leaveButton, room, title } from './room.js';

export function parkedView(request) {
  return [
    title(_('Your place is parked'), request),
    h(
      'p',
      {},
      _(
        'It was your turn while nobody was here, so the next in line got the GPUs. Your age in line is kept: rejoin, and you are near the front again.'
      )
    ),
    (request.reasons ?? []).map(reason => reasonBlock(reason)),
    h(
      'div',
      { class: 'al-actions' },
      button(
        _('Rejoin the line'),
        async () => {
          await call('POST', address('/claim'), { body: {} });
          await room.live.refresh();
        },
        { class: 'btn btn-primary' }
      ),
      leaveButton(_('Leave the line'), _('Leave the line? Your place is lost.'))
    ),
    history(request)
  ];
}

export function grantedView(request, lease) {
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
      h(
        'b',
        { class: 'al-countdown', 'data-until': lease.held_until },
        countdownText(millisecondsTo(lease.held_until))
      )
    ),
    h(
      'p',
      { class: 'al-quiet' },
      _('After that the next in line gets them, and your place is parked with its age.')
    ),
    leaseFacts(lease),
    h(
      'div',
      { class: 'al-actions' },
      button(
        _('Start now'),
        async () => {
          await call('POST', address('/claim'), { body: {} });
          await room.live.refresh();
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
    h(
      'p',
      { class: 'al-quiet' },
      _('This page opens the session by itself. You may also leave; it starts all the same.')
    ),
    request.start_slot
      ? h(
          'p',
          {},
          _('Several sessions start at once; yours is number {n:n} to be started.', {
            n: request.start_slot
          })
        )
      : null,
    (request.reasons ?? [])
      .filter(reason => reason.category === 'preparing' || reason.category === 'backend')
      .map(reason => reasonBlock(reason)),
    lease ? leaseFacts(lease) : null,
    h(
      'div',
      { class: 'al-actions' },
      leaveButton(_('Stop the start'), _('Stop it and give the GPUs back?'))
    )
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
        ? h(
            'a',
            { class: 'btn btn-primary', href: sessionAddress(request), 'data-key': 'open' },
            _('Open the session')
          )
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

export function rejectedView(request) {
  return [
    title(_('This request cannot start'), request),
    reasonBlocks(request.reasons),
    h('p', { class: 'al-quiet' }, _('It is not in line, because waiting would not help.')),
    h('div', { class: 'al-actions' }, againLink(request))
  ];
}

export function endedView(request, lease) {
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
        ? h(
            'a',
            {
              class: 'btn btn-outline-secondary',
              href: `${site.prefix}ended/${segment(lease.id)}`
            },
            _('What happened')
          )
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

export function sessionAddress(request) {
  return safeNext(room.query.next) ?? serverAddress(request.user, request.server);
}

/** The view of a request that waits: place, start, reasons, alternatives, the way out. */

import { N_, _, button, call, complain, h, millisecondsTo, spanText, timeElement } from './base.js';
import { changePanel } from './change.js';
import { reasonBlocks } from './parts.js';
import { changeText, whenText } from './wording.js';
import { address, history, leaveButton, room, title } from './room.js';

const MOST_BARS = 16;

export function queuedView(request) {
  return [
    title(_('Your session is in line'), request),
    h('div', { class: 'al-hero' }, placeBlock(request), startBlock(request)),
    ladder(request),
    reasonBlocks(request.reasons),
    alternatives(request),
    room.panel,
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

export function placeText(request) {
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
  const first = Math.max(room.seen.first, place ?? 0);
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
        ? _('{gone:n} of those in front {gone:plural/has/have} left the line since you came.', {
            gone
          })
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
  await call('PATCH', address(), { body: change });
  await room.live.refresh();
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
      room.panel ? null : button(_('Change'), () => openPanel(request)),
      leaveButton(_('Leave the line'), _('Leave the line? Your place is lost.'))
    )
  );
}

function openPanel(request) {
  const close = () => {
    room.panel = null;
    room.live.redraw();
  };
  room.panel = changePanel(request, {
    cancel: close,
    done: async () => {
      room.panel = null;
      await room.live.refresh();
      close();
    }
  });
  room.live.redraw();
  room.panel.querySelector('input').focus();
}

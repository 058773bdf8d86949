/** What the parts of the waiting room share: which request, and the page that shows it. */

import { _, call, confirmButton, h, segment, timeElement } from './base.js';
import { say } from './sentences.js';
import { Seen } from './memory.js';
import { askText, reasonWords } from './wording.js';

export const room = {
  id: document.body.dataset.id,
  query: JSON.parse(document.body.dataset.query || '{}'),
  seen: new Seen(document.body.dataset.id),
  /** The Live of the page; set when it starts. */
  live: null,
  /** The open form for changes: one element, so that redrawing keeps what is typed. */
  panel: null
};

/** The address of a call about this request. */
export const address = (rest = '') => `requests/${segment(room.id)}${rest}`;

export function title(text, request) {
  const team = request.tenant ? _(', team {tenant}', { tenant: request.tenant }) : '';
  return h(
    'h1',
    {},
    text + _(': ') + askText(request.asked) + team,
    request.server ? h('span', { class: 'al-quiet' }, ` · ${request.server}`) : null
  );
}

export function leaveButton(label, question) {
  return confirmButton(label, question, async () => {
    await call('DELETE', address());
    await room.live.refresh();
  });
}

export function history(request) {
  // Newest first; of one moment, what came later in the record.
  const steps = [...(request.history ?? []), ...room.seen.steps()]
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
        h('li', {}, h('span', { class: 'al-when' }, '↷'), h('span', {}, passText(passed)))
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

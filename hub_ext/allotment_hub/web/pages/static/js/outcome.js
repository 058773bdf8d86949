/** What would be decided about a wish, in words. */

import { _, announce, button, h, millisecondsTo, site, spanText, timeElement } from './base.js';
import { showNumber } from './sentences.js';
import { basisChip, reasonBlocks } from './parts.js';
import { askText, changeText, whenText } from './wording.js';
import { form, wants, wish } from './wish.js';
import { drawFlavors } from './fields.js';

/** What the outcome says, without what changes by the mere passing of time. */
export function gist(answer) {
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

export function outcomeView(answer) {
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
            latest && latest !== expected ? `, ${_('at the latest {at:time}', { at: latest })}` : ''
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
          h(
            'span',
            {},
            h('b', {}, text),
            ' ',
            h('span', { class: 'al-quiet' }, whenText(option.forecast))
          ),
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
  form.parts.count.value = showNumber(wish.gpus);
  for (const name of ['tenant', 'class', 'interruptible']) {
    const element = document.getElementById(name);
    if (element && change[name]) {
      element.value = change[name];
    }
  }
  drawFlavors(form.model());
  form.changed();
  announce(_('Chosen: {text}', { text: changeText(change, wish) }));
}

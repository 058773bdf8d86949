/** Changing what a waiting request asks for, with what it costs said before it is done. */

import { _, button, call, complain, h, segment } from './base.js';
import { showNumber } from './sentences.js';

/** The form; `hooks.done` and `hooks.cancel` are what follows either button. */
export function changePanel(request, hooks) {
  const asked = request.asked;
  const gpus = h('input', {
    id: 'change-gpus',
    class: 'form-control',
    type: 'number',
    min: '0.001',
    step: 'any',
    value: showNumber(asked.gpus),
    'data-key': 'change-gpus'
  });
  const duration = h('input', {
    id: 'change-duration',
    class: 'form-control',
    value: asked.duration ?? '',
    placeholder: '4h',
    pattern: '[0-9]+[smhd]?',
    'data-key': 'change-duration'
  });
  const always = h('input', {
    id: 'change-start',
    class: 'form-check-input',
    type: 'checkbox',
    'data-key': 'change-start'
  });
  always.checked = asked.start === 'always';
  const form = h(
    'form',
    { class: 'al-change', 'aria-label': _('Change what you ask for') },
    field(_('GPUs'), gpus),
    field(_('How long'), duration),
    h(
      'div',
      { class: 'form-check' },
      always,
      h(
        'label',
        { class: 'form-check-label', for: 'change-start' },
        _('Start when it is my turn, even if I am not here')
      )
    ),
    h(
      'p',
      { class: 'al-quiet al-small' },
      _('Asking for less keeps your place; asking for more takes a new one.')
    ),
    h(
      'div',
      { class: 'al-actions' },
      button(
        _('Save'),
        async () => {
          const change = differences();
          complain(null);
          if (Object.keys(change).length) {
            await call('PATCH', `requests/${segment(request.id)}`, { body: change });
          }
          await hooks.done();
        },
        { class: 'btn btn-primary btn-sm' }
      ),
      button(_('Leave as it is'), hooks.cancel)
    )
  );
  form.addEventListener('submit', event => {
    event.preventDefault();
    form.querySelector('.btn-primary').click();
  });

  function differences() {
    const change = {};
    const number = Number(gpus.value);
    if (gpus.value.trim() && number !== asked.gpus) {
      change.gpus = number;
    }
    const text = duration.value.trim();
    if (text && text !== (asked.duration ?? '')) {
      change.duration = /^\d+$/.test(text) ? Number(text) : text;
    }
    const beginning = always.checked ? 'always' : 'present';
    if (beginning !== (asked.start ?? 'present')) {
      change.start = beginning;
    }
    return change;
  }
  return form;
}

function field(label, input) {
  return h(
    'div',
    { class: 'al-field' },
    h('label', { class: 'form-label', for: input.id }, label),
    input
  );
}

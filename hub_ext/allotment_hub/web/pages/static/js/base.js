/**
 * What every page shares: where things are, the language, calls of the interface, and building
 * elements from text only. Nothing here or in the pages ever makes markup out of a string.
 */

import { format, parseTime, showSpan, showTime, useCatalogue } from './sentences.js';

const data = document.body.dataset;

/** Where this page is and who looks at it; set by the template. */
export const site = Object.freeze({
  prefix: data.prefix, // /services/allotment/
  api: `${data.prefix}api/v1/`,
  assets: data.assets,
  hub: data.hub || null, // /hub/, null where the governor stands alone
  base: data.base, // / or wherever the hub's servers lie below
  user: data.user,
  admin: data.admin === 'true',
  lang: data.lang,
  xsrf: data.xsrf
});

let messages = {};

/** Load the language. Called once, before anything is shown. */
export async function start() {
  const answer = await fetch(`${site.assets}locale/${site.lang}.json`, {
    credentials: 'same-origin'
  });
  const catalogue = await answer.json();
  messages = catalogue.messages ?? {};
  useCatalogue(catalogue);
  const button = document.getElementById('language-toggle');
  button?.addEventListener('click', () => {
    const lang = site.lang === 'zh' ? 'en' : 'zh';
    document.cookie = `allotment-lang=${lang}; path=${site.prefix}; max-age=31536000; samesite=lax`;
    location.reload();
  });
}

/** A message in the reader's language, with its values. The message itself is English. */
export function _(message, values = {}) {
  const template = Object.hasOwn(messages, message) ? messages[message] : message;
  return format(template, values, { now: clock.now() });
}

/** Marks a message for the catalogues that is translated only where it is shown. */
export const N_ = message => message;

/** The server's clock: the reader's own may be wrong, and deadlines are not his. */
export const clock = {
  offset: 0,
  known: false,
  now() {
    return new Date(Date.now() + this.offset);
  },
  /** Learn from the Date header of an answer asked for at `sent` (own clock, ms). */
  learn(header, sent) {
    const told = Date.parse(header ?? '');
    if (Number.isNaN(told)) {
      return;
    }
    const middle = (sent + Date.now()) / 2;
    // The header counts whole seconds: half of one on average is cut off.
    const offset = told + 500 - middle;
    if (!this.known || Math.abs(offset - this.offset) > 1500) {
      this.offset = offset;
      this.known = true;
    }
  }
};

export const options = () => ({ now: clock.now() });

/** HH:MM of today, else with the date; a dash where nothing is known. */
export function timeText(value) {
  return showTime(value, clock.now()) ?? '–';
}

/** A time as an element that machines can read too. */
export function timeElement(value) {
  const moment = value instanceof Date ? value : parseTime(value);
  if (!moment) {
    return h('span', {}, '–');
  }
  return h('time', { datetime: moment.toISOString() }, timeText(moment));
}

/** Milliseconds until a time by the server's clock; null where it is not known. */
export function millisecondsTo(value) {
  const moment = parseTime(value);
  return moment === null ? null : moment.getTime() - clock.now().getTime();
}

/** Milliseconds as words. */
export function spanText(ms) {
  return showSpan(Math.max(0, Math.round(ms / 1000))) ?? '';
}

/** Milliseconds as a clock that counts down: 9:05 or 1:09:05. */
export function countdownText(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const two = number => String(number).padStart(2, '0');
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes}:${two(seconds % 60)}`
    : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`;
}

/** The governor's refusal, or that it cannot be reached (status 0). */
export class CallError extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || String(status));
    this.status = status;
    this.problem = problem;
  }

  /** Whether asking again later may help without any change by the user. */
  get passing() {
    return [0, 408, 429, 502, 503, 504].includes(this.status);
  }
}

/** One call of the interface. */
export async function call(method, path, { body, headers, signal } = {}) {
  const sent = Date.now();
  let answer;
  try {
    answer = await fetch(site.api + path, {
      method,
      credentials: 'same-origin',
      redirect: 'error',
      cache: 'no-store',
      signal,
      headers: {
        Accept: 'application/json',
        'X-XSRFToken': site.xsrf,
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...headers
      },
      body: body === undefined ? undefined : JSON.stringify(body)
    });
  } catch (error) {
    if (error.name === 'AbortError') {
      throw error;
    }
    throw new CallError(0, { detail: _('Allotment does not answer.') });
  }
  clock.learn(answer.headers.get('Date'), sent);
  const text = await answer.text();
  let parsed;
  try {
    parsed = text ? JSON.parse(text) : {};
  } catch {
    parsed = null;
  }
  if (!answer.ok) {
    throw new CallError(answer.status, parsed ?? {});
  }
  if (parsed === null) {
    throw new CallError(0, { detail: _('Allotment does not answer.') });
  }
  return parsed;
}

/** A segment of a path, escaped. */
export const segment = encodeURIComponent;

/** The rows of a list answer, bare or under its name. */
export function rows(answer, key) {
  const found = Array.isArray(answer) ? answer : (answer[key] ?? answer.items);
  return Array.isArray(found) ? found : [];
}

/**
 * An element. Properties: `class`, `on` (listeners), `style` (through the CSSOM, which the
 * content policy allows), anything else is an attribute; null and false leave it out. Children
 * are elements or text; text stays text.
 */
export function h(tag, properties = {}, ...children) {
  return fillElement(document.createElement(tag), properties, children);
}

const SVG = 'http://www.w3.org/2000/svg';

export function svg(tag, properties = {}, ...children) {
  return fillElement(document.createElementNS(SVG, tag), properties, children);
}

function fillElement(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) {
      continue;
    }
    if (name === 'on') {
      for (const [event, listener] of Object.entries(value)) {
        element.addEventListener(event, listener);
      }
    } else if (name === 'style') {
      for (const [property, setting] of Object.entries(value)) {
        element.style.setProperty(property, setting);
      }
    } else {
      element.setAttribute(name, value === true ? '' : String(value));
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      element.append(child instanceof Node ? child : String(child));
    }
  }
  return element;
}

/**
 * Replace the content of an element, keeping the focus where the same control is there again
 * and open what was open (both by `data-key`): what is redrawn under a reader's hands must not
 * throw him out.
 */
export function show(element, ...children) {
  const active = document.activeElement;
  const key = element.contains(active) ? active.dataset?.key : null;
  const open = [...element.querySelectorAll('details[open][data-key]')].map(
    details => details.dataset.key
  );
  element.replaceChildren(...children.flat(Infinity).filter(child => child || child === 0));
  for (const name of open) {
    element.querySelector(`details[data-key="${CSS.escape(name)}"]`)?.setAttribute('open', '');
  }
  if (key) {
    element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({
      preventScroll: true
    });
  }
}

let said = '';

/** Tell a screen reader, politely and once. */
export function announce(text) {
  const region = document.getElementById('announcer');
  if (region && text !== said) {
    said = text;
    region.textContent = text;
  }
}

/** A button that cannot be pressed twice while what it does is under way. */
export function button(label, action, properties = {}) {
  const { key = label, ...more } = properties;
  const element = h(
    'button',
    { type: 'button', class: 'btn btn-outline-secondary btn-sm', 'data-key': key, ...more },
    label
  );
  element.addEventListener('click', async () => {
    if (element.getAttribute('aria-disabled') === 'true') {
      return;
    }
    element.setAttribute('aria-disabled', 'true');
    try {
      await action(element);
    } catch (error) {
      complain(error);
    } finally {
      element.removeAttribute('aria-disabled');
    }
  });
  return element;
}

const questions = new Set(); // keys of the questions that are open, over redrawing

/** A button that asks once more in its own place, without a dialog. */
export function confirmButton(label, question, action, properties = {}) {
  const key = properties.key ?? label;
  const holder = h('span', { class: 'al-confirm' });
  const rest = () => {
    questions.delete(key);
    show(holder, button(label, begin, { ...properties, key }));
  };
  const begin = () => {
    ask();
    // The safe answer has the focus: Enter twice must not stop a session.
    holder.querySelector(`[data-key="${CSS.escape(`${key}-no`)}"]`).focus();
    announce(question);
  };
  const ask = () => {
    questions.add(key);
    const finish = async () => {
      // Answered: what the action redraws must not ask again.
      questions.delete(key);
      try {
        await action();
      } finally {
        rest();
      }
    };
    show(
      holder,
      h('span', { class: 'al-question' }, question),
      button(_('Yes'), finish, { class: 'btn btn-danger btn-sm', key: `${key}-yes` }),
      button(_('No'), rest, { key: `${key}-no` })
    );
  };
  if (questions.has(key)) {
    ask();
  } else {
    rest();
  }
  return holder;
}

/** Show what went wrong where the page keeps its messages; `null` takes it away. */
export function complain(error) {
  const place = document.getElementById('complaint');
  if (!place) {
    return;
  }
  if (error === null) {
    place.replaceChildren();
    return;
  }
  const faults = error.problem?.errors ?? [];
  const told = faults
    .filter(fault => !error.message.includes(fault.message))
    .map(fault => h('li', {}, fault.path ? `${fault.path}: ${fault.message}` : fault.message));
  place.replaceChildren(
    h(
      'div',
      { class: 'alert alert-danger al-alert', role: 'alert' },
      h('span', {}, error.message),
      told.length ? h('ul', {}, told) : null,
      h('button', {
        type: 'button',
        class: 'btn-close',
        'aria-label': _('Close'),
        on: { click: () => complain(null) }
      })
    )
  );
}

/** A name as the hub writes it into addresses (Python's quote with "@~" left alone). */
export function escapedName(name) {
  return encodeURIComponent(name)
    .replace(/[!'()*]/g, c => `%${c.charCodeAt(0).toString(16).toUpperCase()}`)
    .replaceAll('%40', '@');
}

/** Where a server of a user is. */
export function serverAddress(user, server) {
  const path = `user/${escapedName(user)}/`;
  return `${site.base}${path}${server ? `${encodeURIComponent(server)}/` : ''}`;
}

/** A path on this origin to go on to, or null: what comes from outside is never trusted. */
export function safeNext(value) {
  // eslint-disable-next-line no-control-regex -- control characters are what is looked for
  if (!value || !value.startsWith('/') || /[\\\s\u0000-\u001f]/.test(value)) {
    return null;
  }
  try {
    const target = new URL(value, location.origin);
    return target.origin === location.origin && !value.startsWith('//')
      ? target.pathname + target.search + target.hash
      : null;
  } catch {
    return null;
  }
}

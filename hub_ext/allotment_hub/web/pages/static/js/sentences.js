/**
 * What a code and its numbers mean, in words. The twin of allotment_hub/sentences.py: the same
 * catalogues, the same rules, the same text, but in the reader's own time zone. A test compares
 * the two over all codes.
 */

const PLACE = /\{([a-z_]+)(?::([a-z_]+)((?:\/[^/{}]*){0,2}))?\}/g;
const SPAN_SECONDS = { s: 1, m: 60, h: 3600, d: 86400 };
const MISSING = Symbol('missing');

let words = { join: ' ', and: ' and ', comma: ', ', units: {}, reasons: {} };

/** Use a catalogue: the parsed content of locale/LANG.json. */
export function useCatalogue(catalogue) {
  words = catalogue;
}

/** A flavor as people write it: a100-80g → A100 80 GB. Names of other forms stay as they are. */
export function flavorName(name) {
  const text = String(name);
  if (!/^[a-z0-9]+(-[a-z0-9]+)*$/.test(text)) {
    return text;
  }
  return text
    .split('-')
    .map(part => {
      const memory = /^(\d+)gb?$/.exec(part);
      if (memory) {
        return `${memory[1]} GB`;
      }
      return /\d/.test(part) ? part.toUpperCase() : part;
    })
    .join(' ');
}

/** A number with at most three decimals, "?" where it is unknown. */
export function showNumber(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) {
    return '?';
  }
  return Number.isInteger(value) ? String(value) : value.toFixed(3).replace(/0+$/, '');
}

/** A span such as "20m", 90 or 5400 in words; null where it cannot be read. */
export function showSpan(value) {
  const text = writers.duration(value, {});
  return text === MISSING ? null : text;
}

/** A point in time as HH:MM, with the date unless it is today by `now` (a Date or null). */
export function showTime(value, now = null, zone = undefined) {
  const text = writers.time(value, { now, zone });
  return text === MISSING ? null : text;
}

/** The first sentence of a reason, and what follows it. */
export function reasonParts(code, evidence, options = {}) {
  const values = { ...evidence };
  if (options.until && values.until === undefined) {
    values.until = options.until;
  }
  const entry = Object.hasOwn(words.reasons, code) ? words.reasons[code] : null;
  if (!entry) {
    return {
      head: words.unknown_reason.replace('{code}', () => String(code).slice(0, 80)),
      more: ''
    };
  }
  const { text, index } = first(entry.head, values, options);
  // A sentence repeats nothing that the head has said already.
  const said = keysOf(entry.head[index]);
  const more = entry.more
    .filter(template => {
      const keys = [...keysOf(template)];
      return !keys.length || keys.some(key => !said.has(key));
    })
    .map(template => fill(template, values, options))
    .filter(filled => filled !== null)
    .join(words.join);
  return { head: text, more };
}

/** A reason as one text. */
export function reason(code, evidence, options = {}) {
  const { head, more } = reasonParts(code, evidence, options);
  return more ? head + words.join + more : head;
}

/** A sentence of the catalogue by a dotted key; an unknown key reads as its last part. */
export function say(key, values = {}, options = {}) {
  let node = words;
  for (const part of key.split('.')) {
    node =
      node !== null && typeof node === 'object' && Object.hasOwn(node, part) ? node[part] : null;
  }
  if (node === null || (typeof node === 'object' && !Array.isArray(node))) {
    return key
      .split('.')
      .pop()
      .replace(/([a-z])([A-Z])/g, '$1 $2')
      .replaceAll('_', ' ');
  }
  return first(typeof node === 'string' ? [node] : node, values, options).text;
}

/** Fill one template of the pages' own messages. */
export function format(template, values = {}, options = {}) {
  return first([template], values, options).text;
}

function keysOf(template) {
  return new Set([...template.matchAll(PLACE)].map(match => match[1]));
}

function first(templates, values, options) {
  for (const [index, template] of templates.entries()) {
    const text = fill(template, values, options);
    if (text !== null) {
      return { text, index };
    }
  }
  const last = templates.length - 1;
  return { text: templates[last].replace(PLACE, '?'), index: last };
}

function fill(template, values, options) {
  let missing = false;
  const text = template.replace(PLACE, (_, key, kind = 'text', choice = '') => {
    const value = Object.hasOwn(values, key) ? values[key] : null;
    if (value === null || value === undefined) {
      missing = true;
      return '';
    }
    const written =
      kind === 'plural'
        ? plural(value, choice)
        : Object.hasOwn(guards, kind)
          ? guards[kind](String(value), choice.slice(1))
          : (writers[kind] ?? writers.text)(value, options);
    if (written === MISSING) {
      missing = true;
      return '';
    }
    return written;
  });
  return missing ? null : text;
}

// Guards write nothing: they say for which values a template is meant.
const guards = {
  given: () => '',
  is: (text, wanted) => (text === wanted ? '' : MISSING),
  not: (text, unwanted) => (text === unwanted ? MISSING : '')
};

function plural(value, choice) {
  const count = amount(value);
  if (count === MISSING) {
    return MISSING;
  }
  const [one, other] = choice.slice(1).split('/');
  return count === 1 ? one : other;
}

function amount(value) {
  if (Array.isArray(value)) {
    return value.length;
  }
  if (value !== null && typeof value === 'object') {
    return Object.keys(value).length;
  }
  return typeof value === 'number' && Number.isFinite(value) ? value : MISSING;
}

function unit(name, count) {
  const forms = words.units[name];
  const form = count > 0 && count <= 1 ? forms[0] : forms[1];
  return form.replace('{n}', () => showNumber(count));
}

function joined(items) {
  if (items.length === 1) {
    return items[0];
  }
  return items.slice(0, -1).join(words.comma) + words.and + items.at(-1);
}

function byName(value, write) {
  if (
    value === null ||
    typeof value !== 'object' ||
    Array.isArray(value) ||
    !Object.keys(value).length
  ) {
    return MISSING;
  }
  const items = Object.entries(value).map(([name, item]) => write(writers.text(name), item));
  return items.includes(MISSING) ? MISSING : items.join(words.comma);
}

function amountsBy(value, form) {
  return byName(value, (name, item) => {
    const count = amount(item);
    return count === MISSING
      ? MISSING
      : words.units[form].replace(/\{n\}|\{name\}/g, place =>
          place === '{n}' ? showNumber(count) : name
        );
  });
}

const writers = {
  n(value) {
    const count = amount(value);
    return count === MISSING ? MISSING : showNumber(count);
  },
  gpus(value) {
    const count = amount(value);
    return count === MISSING ? MISSING : unit('gpu', count);
  },
  text(value) {
    if (value !== null && typeof value === 'object') {
      return MISSING;
    }
    return String(value).trim().split(/\s+/).join(' ').slice(0, 200);
  },
  word(value) {
    const text = writers.text(value);
    return text !== MISSING && words.words && Object.hasOwn(words.words, text)
      ? words.words[text]
      : text;
  },
  flavor(value) {
    const text = writers.text(value);
    return text === MISSING ? MISSING : flavorName(text);
  },
  list(value) {
    const items = typeof value === 'string' ? [value] : value;
    if (!Array.isArray(items) || !items.length) {
      return MISSING;
    }
    const texts = items.map(item => writers.text(item));
    return texts.includes(MISSING) ? MISSING : joined(texts);
  },
  by_node: value => amountsBy(value, 'on_node'),
  by_tenant: value => amountsBy(value, 'of_tenant'),
  by_name: value =>
    byName(value, (name, item) => {
      const text = writers.text(item);
      return text === MISSING ? MISSING : `${name}: ${text}`;
    }),
  time(value, { now = null, zone } = {}) {
    const moment = value instanceof Date ? value : parseTime(value);
    if (moment === null) {
      return MISSING;
    }
    const clock = parts(moment, zone);
    const today = now !== null && parts(now, zone).day === clock.day;
    const text = today ? clock.time : `${clock.day} ${clock.time}`;
    return zone === 'UTC' ? `${text} UTC` : text;
  },
  duration(value) {
    const match = /^(\d+(?:\.\d+)?)(s|m|h|d)?$/.exec(String(value));
    if (!match || typeof value === 'boolean') {
      return MISSING;
    }
    const seconds = Math.round(Number(match[1]) * (match[2] ? SPAN_SECONDS[match[2]] : 1));
    for (const [size, name, smaller, smallerName] of [
      [86400, 'day', 3600, 'hour'],
      [3600, 'hour', 60, 'minute'],
      [60, 'minute', null, null]
    ]) {
      // 90 s stays "90 seconds": in minutes alone it would lose half of one.
      if (seconds >= (size === 60 && seconds % 60 ? 2 * size : size)) {
        const text = unit(name, Math.floor(seconds / size));
        const rest = seconds % size;
        return smaller !== null && rest >= smaller
          ? `${text} ${unit(smallerName, Math.floor(rest / smaller))}`
          : text;
      }
    }
    return unit('second', seconds);
  },
  memory(value) {
    if (typeof value === 'string') {
      const match = /^(\d+(?:\.\d+)?)\s?([KMGT]i?B|B)$/.exec(value);
      return match ? `${match[1]} ${match[2]}` : MISSING;
    }
    const size = amount(value);
    if (size === MISSING) {
      return MISSING;
    }
    for (const [name, power] of [
      ['TiB', 40],
      ['GiB', 30],
      ['MiB', 20],
      ['KiB', 10]
    ]) {
      if (size >= 2 ** power) {
        return `${showNumber(Math.round((size / 2 ** power) * 10) / 10)} ${name}`;
      }
    }
    return `${showNumber(size)} B`;
  }
};

/** An RFC 3339 time as a Date, null for anything else. */
export function parseTime(value) {
  if (
    typeof value !== 'string' ||
    !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?$/.test(value)
  ) {
    return null;
  }
  const zoned = /(Z|[+-]\d\d:\d\d)$/.test(value) ? value : `${value}Z`;
  const moment = new Date(zoned);
  return Number.isNaN(moment.getTime()) ? null : moment;
}

const formats = new Map();

function parts(moment, zone) {
  let formatter = formats.get(zone);
  if (!formatter) {
    formatter = new Intl.DateTimeFormat('en-GB', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit'
    });
    formats.set(zone, formatter);
  }
  const found = {};
  for (const part of formatter.formatToParts(moment)) {
    found[part.type] = part.value;
  }
  return {
    day: `${found.year}-${found.month}-${found.day}`,
    time: `${found.hour}:${found.minute}`
  };
}

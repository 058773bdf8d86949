/**
 * Keeps a page's picture fresh: a stream of changes where it flows, asking again where it does
 * not, and the honest age of what is shown either way.
 *
 * The stream is read with fetch and not with EventSource: its heartbeats are then seen, so that a
 * stream which a proxy holds back is found out, and no token has to stand in an address.
 */

import { CallError, clock, site } from './base.js';

const SILENT_AFTER = 30_000; // the heartbeat comes every 20 s at the latest
const ASK_WHILE_STREAMING = 30_000;
const ASK_WITHOUT_STREAM = 5_000;
const RETRY = [1_000, 2_000, 4_000, 8_000, 15_000];
const GATHER = 150;
const LATER = 6_000;
const REDRAW_AFTER = 25_000;

/** Own rows are news at once; what concerns everybody can wait a little. */
function soonOrLater(event) {
  return ['request', 'lease', 'notice'].includes(event.name)
    ? true
    : event.name === 'capacity'
      ? 'later'
      : false;
}

export class Live {
  /**
   * @param load async () => model; throws CallError
   * @param draw (model, news) => void; news = {state, at, error}
   * @param wants (event) => what an event of the stream means for this page: true to ask at
   *   once, 'later' to ask within some seconds (thousands of pages see the same event), false
   *   to go on. It may change `live.model` itself; the page is then drawn anew.
   */
  constructor({ load, draw, wants = soonOrLater }) {
    this.load = load;
    this.draw = draw;
    this.wants = wants;
    this.model = null;
    this.news = { state: 'loading', at: null, error: null };
    this.lastId = null;
    this.failures = 0;
    this.asking = null;
    this.again = false;
    this.stopped = false;
    this.streaming = false;
  }

  start() {
    document.addEventListener('visibilitychange', () => this.onVisibility());
    window.addEventListener('online', () => this.refresh());
    window.addEventListener('pageshow', event => {
      if (event.persisted) {
        this.refresh();
      }
    });
    this.refresh();
    this.follow();
    return this;
  }

  stop() {
    this.stopped = true;
    this.abort?.abort();
    clearTimeout(this.timer);
  }

  onVisibility() {
    if (!document.hidden) {
      this.refresh();
      this.wake?.();
    }
  }

  /** Ask for the model; calls that come while one is under way become one more. */
  async refresh() {
    if (this.stopped) {
      return;
    }
    if (this.asking) {
      this.again = true;
      return this.asking;
    }
    clearTimeout(this.timer);
    this.asking = this.ask();
    try {
      await this.asking;
    } finally {
      this.asking = null;
    }
    if (this.again) {
      this.again = false;
      return this.refresh();
    }
    this.plan();
  }

  async ask() {
    try {
      this.model = await this.load();
      this.failures = 0;
      this.news = {
        state: this.streaming ? 'live' : 'asking',
        at: clock.now(),
        error: null
      };
    } catch (error) {
      if (!(error instanceof CallError)) {
        throw error;
      }
      this.failures += 1;
      this.news = {
        ...this.news,
        state: error.passing ? 'unreachable' : 'refused',
        error
      };
    }
    this.drawIfNew();
  }

  /** Draw again what is known. */
  redraw() {
    this.draw(this.model, this.news);
  }

  /** Draw what has changed; now and then all the same, since "in 12 minutes" grows old. */
  drawIfNew() {
    const { state, error } = this.news;
    const picture = JSON.stringify([this.model, state, error?.status]);
    if (picture === this.drawn && Date.now() - this.drawnAt < REDRAW_AFTER) {
      return;
    }
    this.drawn = picture;
    this.drawnAt = Date.now();
    this.redraw();
  }

  /** Ask again in a while: seldom while the stream flows, not at all while nobody looks. */
  plan() {
    clearTimeout(this.timer);
    if (this.stopped || document.hidden || this.news.state === 'refused') {
      return;
    }
    const pause = this.failures
      ? RETRY[Math.min(this.failures, RETRY.length) - 1]
      : this.streaming
        ? ASK_WHILE_STREAMING
        : ASK_WITHOUT_STREAM;
    // Many pages that lost one governor must not all come back in the same moment.
    this.timer = setTimeout(() => this.refresh(), pause * (0.8 + Math.random() * 0.4));
  }

  gather() {
    clearTimeout(this.gathering);
    this.gathering = setTimeout(() => this.refresh(), GATHER);
  }

  async follow() {
    let tries = 0;
    while (!this.stopped) {
      if (document.hidden) {
        // A page that nobody sees holds no stream; it catches up when it is looked at.
        await new Promise(resolve => {
          this.wake = resolve;
        });
      }
      const began = Date.now();
      await this.stream();
      const flowed = Date.now() - began > SILENT_AFTER;
      tries = flowed ? 0 : tries + 1;
      if (this.streaming) {
        this.streaming = false;
        this.gather();
      }
      const pause = RETRY[Math.min(tries, RETRY.length - 1)];
      await new Promise(resolve => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
  }

  /** Read the stream until it ends, breaks or falls silent. */
  async stream() {
    const abort = new AbortController();
    this.abort = abort;
    let watch = setTimeout(() => abort.abort(), SILENT_AFTER);
    const hide = () => document.hidden && abort.abort();
    document.addEventListener('visibilitychange', hide);
    try {
      const answer = await fetch(`${site.api}events`, {
        credentials: 'same-origin',
        redirect: 'error',
        cache: 'no-store',
        signal: abort.signal,
        headers: {
          Accept: 'text/event-stream',
          'X-XSRFToken': site.xsrf,
          ...(this.lastId ? { 'Last-Event-ID': this.lastId } : {})
        }
      });
      if (!answer.ok || !answer.body) {
        return;
      }
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser(event => this.onEvent(event));
      for (;;) {
        const { value, done } = await reader.read();
        if (done) {
          return;
        }
        if (!this.streaming) {
          this.streaming = true;
          this.news = { ...this.news, state: this.failures ? this.news.state : 'live' };
          this.gather();
        }
        clearTimeout(watch);
        watch = setTimeout(() => abort.abort(), SILENT_AFTER);
        parser.take(value);
      }
    } catch {
      // Broken off: `follow` opens it anew, and meanwhile the page asks.
    } finally {
      clearTimeout(watch);
      document.removeEventListener('visibilitychange', hide);
    }
  }

  onEvent(event) {
    this.lastId = event.id || this.lastId;
    const wanted = this.wants(event, this);
    if (wanted === true) {
      this.gather();
    } else if (wanted === 'later' && !this.delayed) {
      this.delayed = setTimeout(
        () => {
          this.delayed = null;
          this.refresh();
        },
        LATER * (0.5 + Math.random())
      );
    }
    if (this.model) {
      this.drawIfNew();
    }
  }
}

/** Server-sent events out of text, by the HTML standard, 9.2.6. */
export class EventParser {
  constructor(emit) {
    this.emit = emit;
    this.rest = '';
    this.reset();
    this.id = '';
  }

  reset() {
    this.name = 'message';
    this.data = [];
  }

  take(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r/);
    this.rest = lines.pop();
    for (const line of lines) {
      this.line(line);
    }
  }

  line(line) {
    if (line === '') {
      if (this.data.length) {
        let value = this.data.join('\n');
        try {
          value = JSON.parse(value);
        } catch {
          // not JSON: handed on as the text that it is
        }
        this.emit({ id: this.id, name: this.name, data: value });
      }
      this.reset();
      return;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (field === 'data') {
      this.data.push(value);
    } else if (field === 'event') {
      this.name = value;
    } else if (field === 'id' && !value.includes('\0')) {
      this.id = value;
    }
  }
}

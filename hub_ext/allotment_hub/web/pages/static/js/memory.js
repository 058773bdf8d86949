/**
 * What this browser tab has seen of one request: the first place and the places since. The
 * governor keeps why a request waited; how the place moved is only worth keeping for who looks.
 */

const MOST = 50;

export class Seen {
  constructor(id) {
    this.key = `allotment-seen-${id}`;
    this.places = [];
    try {
      const stored = JSON.parse(sessionStorage.getItem(this.key) ?? '[]');
      this.places = stored.filter(row => Number.isInteger(row.place) && typeof row.at === 'string');
    } catch {
      // nothing stored, or storage is forbidden: it begins now
    }
  }

  /** Note a place; true when it differs from the one before. */
  note(place, at) {
    const last = this.places.at(-1);
    if (!Number.isInteger(place) || last?.place === place) {
      return false;
    }
    this.places.push({ place, at: at.toISOString() });
    this.places.splice(1, Math.max(0, this.places.length - MOST));
    try {
      sessionStorage.setItem(this.key, JSON.stringify(this.places));
    } catch {
      // kept for as long as the page is open
    }
    return last !== undefined;
  }

  /** The largest place seen: how long the line in front was. */
  get first() {
    return Math.max(0, ...this.places.map(row => row.place));
  }

  /** Changes of place as steps of a history. */
  steps() {
    return this.places.slice(1).map((row, index) => ({
      at: row.at,
      what: 'place',
      from: this.places[index].place,
      to: row.place
    }));
  }
}

// What is known of the gateway: the sections of its document, and each pool's last minute and hour.

const KEPT = 60;

export class State {
  constructor() {
    this.sections = {};
    this.history = {};
    this.columns = {};
    this.now = 0;
  }

  /** Take an event in. */
  take(name, data) {
    this.now = data.now;
    this.skew = data.now - Date.now() / 1000;
    if (name === "snapshot") {
      const { now, columns, history, ...sections } = data;
      this.columns = Object.fromEntries(columns.map((column, at) => [column, at]));
      this.history = history;
      this.sections = sections;
      return;
    }
    const { now, points, minutes, ...sections } = data;
    for (const [pool, rows] of Object.entries(points ?? {})) this.note(pool, "seconds", rows);
    for (const [pool, rows] of Object.entries(minutes ?? {})) this.note(pool, "minutes", rows);
    for (const [section, items] of Object.entries(sections)) {
      const known = (this.sections[section] ??= {});
      for (const [key, item] of Object.entries(items)) {
        if (item === null) delete known[key];
        else known[key] = item;
      }
    }
  }

  note(pool, kind, rows) {
    const ring = ((this.history[pool] ??= { seconds: [], minutes: [] })[kind] ??= []);
    for (const row of rows) if (!ring.length || row[0] > ring[ring.length - 1][0]) ring.push(row);
    ring.splice(0, ring.length - KEPT);
  }

  /** The items of a section, [key, item]. */
  items(section) {
    return Object.entries(this.sections[section] ?? {});
  }

  item(section, key) {
    return this.sections[section]?.[key];
  }

  /** Now, by the gateway's clock. */
  time() {
    return Date.now() / 1000 + (this.skew ?? 0);
  }
}

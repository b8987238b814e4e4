// What is known of the gateway: the sections of its document, and each pool's last minute and hour.

const KEPT = 60;

/** Where each column is in a row. */
const places = (columns) => Object.fromEntries(columns.map((column, at) => [column, at]));

/** The rows that are newer than those that are known; no more than there is room for are kept. */
function add(ring, rows) {
  for (const row of rows) if (!ring.length || row[0] > ring.at(-1)[0]) ring.push(row);
  ring.splice(0, ring.length - KEPT);
}

export class State {
  constructor() {
    this.sections = {};
    this.history = {};
    this.columns = {};
    this.replicaHistory = {};
    this.replicaColumns = {};
    this.newest = 0;
    this.now = 0;
  }

  /** Take an event in. */
  take(name, data) {
    this.now = data.now;
    this.skew = data.now - Date.now() / 1000;
    if (name === "snapshot") {
      const { now, columns, history, replica_columns, replica_history, ...sections } = data;
      this.columns = places(columns);
      this.replicaColumns = places(replica_columns);
      this.history = history;
      this.replicaHistory = replica_history;
      this.newest = Math.max(0, ...Object.values(history).map((each) => each.seconds.at(-1)?.[0] ?? 0));
      this.sections = sections;
      return;
    }
    const { now, points, minutes, replica_points, ...sections } = data;
    for (const [pool, rows] of Object.entries(points)) this.note(pool, "seconds", rows);
    for (const [pool, rows] of Object.entries(minutes)) this.note(pool, "minutes", rows);
    for (const [replica, rows] of Object.entries(replica_points)) add((this.replicaHistory[replica] ??= []), rows);
    for (const [section, items] of Object.entries(sections)) {
      const known = (this.sections[section] ??= {});
      for (const [key, item] of Object.entries(items)) {
        if (item === null) delete known[key];
        else known[key] = item;
      }
    }
  }

  note(pool, kind, rows) {
    add(((this.history[pool] ??= { seconds: [], minutes: [] })[kind] ??= []), rows);
    if (kind === "seconds" && rows.length) this.newest = Math.max(this.newest, rows.at(-1)[0]);
  }

  /** A replica's last minute, a row for each second: empty where no step ended in it. */
  minuteOf(replica) {
    const seconds = Array.from({ length: KEPT }, () => []);
    for (const row of this.replicaHistory[replica] ?? []) {
      const place = KEPT - 1 - Math.round(this.newest - row[0]);
      if (place >= 0 && place < KEPT) seconds[place] = row;
    }
    return seconds;
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

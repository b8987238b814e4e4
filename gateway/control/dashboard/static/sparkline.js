// A pool's steps over time: hook time from the ground up, forward time on it, and the budget that hooks have.
// Heights are square roots, so that a hundred microseconds of hooks beside ten milliseconds of forward can be seen.

import { put, s, text } from "./dom.js";
import { micros, span } from "./format.js";

const WIDTH = 240;
const HEIGHT = 64;
const PLACES = 60;
const HEADROOM = 1.15;

export class Sparkline {
  /** `readout`: the element that says what is under the pointer; none for a small one. */
  constructor(readout = null) {
    this.readout = readout;
    this.forward = s("path", { class: "forward" });
    this.hook = s("path", { class: "hook" });
    this.over = s("path", { class: "over" });
    this.budget = s("line", { class: "budget", x1: 0, x2: WIDTH });
    this.cursor = s("line", { class: "cursor", y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.element = s(
      "svg",
      { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      this.forward, this.hook, this.over, this.budget, this.cursor,
    );
    if (!readout) return;
    this.element.addEventListener("pointermove", (event) => this.point(event));
    this.element.addEventListener("pointerleave", () => this.leave());
  }

  /** rows: as the gateway sends them; columns: where what is; each: seconds between two. */
  update(rows, columns, budgetUs, each) {
    this.rows = rows.map((row) => ({
      hook: row[columns.hook_us],
      forward: row[columns.forward_us],
      longest: row[columns.longest_us],
      steps: row[columns.steps],
    }));
    this.each = each;
    const sums = this.rows.map((row) => (row.hook ?? 0) + (row.forward ?? 0));
    const most = Math.max(...sums, budgetUs ?? 0, 1) * HEADROOM;
    const y = (us) => HEIGHT * (1 - Math.sqrt(us / most));
    put(this.forward, "d", this.area(sums, y));
    put(this.hook, "d", this.area(this.rows.map((row) => row.hook ?? 0), y));
    put(this.over, "d", budgetUs === null ? "" : this.marks((row) => (row.hook ?? 0) > budgetUs));
    put(this.budget, "visibility", budgetUs === null ? "hidden" : "visible");
    if (budgetUs !== null) {
      put(this.budget, "y1", y(budgetUs).toFixed(1));
      put(this.budget, "y2", y(budgetUs).toFixed(1));
    }
    const last = this.rows.findLast((row) => row.steps);
    const said = last ? `latest step: hooks ${micros(last.hook)}, forward ${micros(last.forward)}` : "no steps seen";
    put(this.element, "aria-label", `Time per step. ${said}; budget for hooks ${micros(budgetUs)}`);
    if (this.readout && this.at === undefined) this.say(null);
  }

  area(values, y) {
    const width = WIDTH / PLACES;
    let path = "";
    let left = WIDTH - values.length * width;
    for (const value of values) {
      if (value) path += `M${left.toFixed(1)} ${HEIGHT}V${y(value).toFixed(1)}h${(width + 0.15).toFixed(2)}V${HEIGHT}z`;
      left += width;
    }
    return path;
  }

  marks(isOver) {
    const width = WIDTH / PLACES;
    const first = WIDTH - this.rows.length * width;
    return this.rows.map((row, at) => (isOver(row) ? `M${(first + at * width).toFixed(1)} 0h${width}v2.5h-${width}z` : "")).join("");
  }

  point(event) {
    const box = this.element.getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * PLACES);
    this.at = place - (PLACES - this.rows.length);
    const x = ((place + 0.5) * WIDTH) / PLACES;
    put(this.cursor, "x1", x);
    put(this.cursor, "x2", x);
    put(this.cursor, "visibility", "visible");
    const row = this.rows[this.at];
    this.say(row ? `${span((this.rows.length - 1 - this.at) * this.each)} ago` : null, row);
  }

  leave() {
    this.at = undefined;
    put(this.cursor, "visibility", "hidden");
    this.say(null);
  }

  say(when, row = this.rows.findLast((each) => each.steps)) {
    if (!row || !row.steps) text(this.readout, when ? `${when}: no steps` : "no steps are told of");
    else text(this.readout, `${when ?? "now"}: hooks ${micros(row.hook)} · forward ${micros(row.forward)} · longest ${micros(row.longest)}`);
  }
}

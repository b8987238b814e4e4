// All replicas: state and why, their last minute, what their engines tell, and the operator's hand on them.

import { post } from "./api.js";
import { ask } from "./ask.js";
import { byId, h, put, text } from "./dom.js";
import { count, micros, percent, rate, seconds, span } from "./format.js";
import { overBudget } from "./pools.js";
import { errorWord, feed, ReplicaDialog, standing } from "./replica.js";
import { Sparkline } from "./sparkline.js";
import { Table } from "./table.js";

const BY_STATE = ["down", "ejected", "trial", "draining", "warming", "resting", "up"];

export class Replicas {
  constructor(state) {
    this.state = state;
    this.filter = byId("replica-filter");
    this.filter.addEventListener("input", () => this.show());
    this.dialog = new ReplicaDialog(state);
    this.table = new Table(byId("replica-table"), "Replicas", this.columns(), "no replica matches");
  }

  show() {
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.state.items("replicas").filter(([name, each]) => `${name} ${each.pool} ${each.state}`.toLowerCase().includes(wanted));
    this.table.update(found.sort(([, a], [, b]) => BY_STATE.indexOf(a.state) - BY_STATE.indexOf(b.state)));
    this.dialog.show();
  }

  columns() {
    return [
      { label: "Replica", class: "name", build: (cell, name) => this.named(cell, name) },
      { label: "State", build: (cell) => this.standing(cell) },
      { label: "In flight", num: true, show: inFlight },
      { label: "Req/s", num: true, show: (each) => rate(each.per_s) },
      { label: "TTFT p50, p99", num: true, build: two((each) => [seconds(each.ttft_p50_s), seconds(each.ttft_p99_s)]) },
      { label: "ITL p50, p99", num: true, build: two((each) => [micros(each.itl_p50_us), micros(each.itl_p99_us)]) },
      { label: "Steps", build: (cell, name) => this.steps(cell, name) },
      { label: "Budget used", num: true, show: budget },
      { label: "Engine, feed", build: two((each) => [`${each.engine} ${each.version}`.trim(), feed(each)]) },
      { label: "Errors", build: (cell) => this.errors(cell) },
      { label: "", class: "actions", build: (cell, name) => this.actions(cell, name) },
    ];
  }

  named(cell, name) {
    const where = h("span", { class: "dim" });
    const open = h("button", { type: "button", class: "link", "aria-label": `Details of ${name}`, onclick: () => this.dialog.open(name) }, h("strong", {}, name));
    cell.append(open, h("br"), where);
    return (each) => text(where, `${each.pool} · ${each.url.replace(/^https?:\/\//, "")}`);
  }

  standing(cell) {
    const chip = h("span", { class: "chip" });
    const why = h("span", { class: "why dim" });
    cell.append(chip, " ", why);
    return (each) => {
      put(chip, "data-state", each.state);
      text(chip, each.state);
      text(why, standing(each, this.state.time()));
    };
  }

  steps(cell, name) {
    const spark = new Sparkline();
    cell.append(spark.element);
    return (each) => spark.update(this.state.minuteOf(name), this.state.replicaColumns, each.budget_us, 1);
  }

  errors(cell) {
    const total = h("span", { class: "num" });
    const latest = h("span", { class: "why dim" });
    cell.append(total, " ", latest);
    return (each) => {
      const sum = Object.values(each.errors).reduce((found, number) => found + number, 0);
      put(cell, "data-level", each.last_errors.length ? "warn" : null);
      text(total, sum || !each.last_errors.length ? count(sum) : "");
      const [error] = each.last_errors;
      text(latest, error ? `${errorWord(error)} ${span(this.state.time() - error.at)} ago` : "");
    };
  }

  actions(cell, name) {
    const drain = h("button", { type: "button", class: "quiet operates" });
    const eject = h("button", { type: "button", class: "quiet operates", "aria-label": `Eject ${name}` }, "Eject");
    cell.append(drain, " ", eject);
    let draining = false;
    drain.addEventListener("click", () => {
      const verb = draining ? "undrain" : "drain";
      const said = draining ? "It gets requests again." : "It gets no new requests; what runs there is finished.";
      ask({ title: `${draining ? "Undrain" : "Drain"} ${name}?`, said, verb: draining ? "Undrain" : "Drain" }, (by) => post(`/api/v1/replicas/${encodeURIComponent(name)}/${verb}`, by));
    });
    eject.addEventListener("click", () => {
      const said = "It is taken for sick, as its breaker does by itself: no requests for a while, then a few on trial.";
      ask({ title: `Eject ${name}?`, said, verb: "Eject" }, (by) => post(`/api/v1/replicas/${encodeURIComponent(name)}/eject`, by));
    });
    return (each) => {
      draining = each.state === "draining";
      text(drain, draining ? "Undrain" : "Drain");
      put(drain, "aria-label", `${draining ? "Undrain" : "Drain"} ${name}`);
      put(eject, "disabled", each.breaker === "open");
    };
  }
}

/** A cell of two lines, the second of lesser weight: `said(item)` gives both, as text or {text, level}. */
function two(said) {
  return (cell) => {
    const lines = [h("span"), h("span", { class: "second dim" })];
    cell.append(...lines);
    return (each) =>
      said(each).forEach((line, at) => {
        text(lines[at], line.text ?? line);
        put(lines[at], "data-level", line.level ?? null);
      });
  };
}

function inFlight(each) {
  return each.waiting ? { text: `${count(each.in_flight)} (${count(each.waiting)} wait)`, level: "warn", title: "for a connection" } : count(each.in_flight);
}

function budget(each) {
  return { text: percent(each.budget_use), level: each.budget_use > 1 ? "bad" : null, title: overBudget(each) || null };
}

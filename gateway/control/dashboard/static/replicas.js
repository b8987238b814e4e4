// All replicas: state and why, what runs there, what their engines tell, and the operator's hand on them.

import { post } from "./api.js";
import { ask } from "./ask.js";
import { byId, h, put, text } from "./dom.js";
import { count, micros, percent, rate, span } from "./format.js";
import { Table } from "./table.js";

const BY_STATE = ["down", "ejected", "trial", "draining", "warming", "resting", "up"];

export class Replicas {
  constructor(state) {
    this.state = state;
    this.filter = byId("replica-filter");
    this.filter.addEventListener("input", () => this.show());
    this.table = new Table(byId("replica-table"), "Replicas", this.columns(), "no replica matches");
  }

  show() {
    const wanted = this.filter.value.trim().toLowerCase();
    const found = this.state.items("replicas").filter(([name, each]) => `${name} ${each.pool} ${each.state}`.toLowerCase().includes(wanted));
    this.table.update(found.sort(([, a], [, b]) => BY_STATE.indexOf(a.state) - BY_STATE.indexOf(b.state)));
  }

  columns() {
    return [
      { label: "Replica", class: "name", build: (cell, name) => named(cell, name) },
      { label: "Pool", show: (each) => each.pool },
      { label: "State", build: (cell) => this.standing(cell) },
      { label: "In flight", num: true, show: (each) => count(each.in_flight) },
      { label: "Req/s", num: true, show: (each) => rate(each.per_s) },
      { label: "Booked", num: true, show: (each) => ({ text: percent(each.booked), title: "share of the step budget that is booked" }) },
      { label: "Hooks", num: true, show: (each) => ({ text: micros(each.hook_us), title: "mean per step since the start" }) },
      { label: "Forward", num: true, show: (each) => ({ text: micros(each.forward_us), title: "mean per step since the start" }) },
      { label: "Engine", show: (each) => `${each.engine} ${each.version}`.trim() },
      { label: "Feed", show: feed },
      { label: "Errors", num: true, show: errors },
      { label: "", class: "actions", build: (cell, name) => this.actions(cell, name) },
    ];
  }

  standing(cell) {
    const chip = h("span", { class: "chip" });
    const why = h("span", { class: "why dim" });
    cell.append(chip, " ", why);
    return (each) => {
      put(chip, "data-state", each.state);
      text(chip, each.state);
      const since = span(this.state.time() - each.since);
      const back = each.back_at ? `, back on trial in ${span(each.back_at - this.state.time())}` : "";
      text(why, `${each.why || each.held || ""}${each.why || each.held ? " · " : ""}${since}${back}`);
    };
  }

  actions(cell, name) {
    const drain = h("button", { type: "button", class: "quiet" });
    const eject = h("button", { type: "button", class: "quiet", "aria-label": `Eject ${name}` }, "Eject");
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

function named(cell, name) {
  const url = h("span", { class: "dim mono" });
  cell.append(h("strong", {}, name), " ", url);
  return (each) => text(url, each.url.replace(/^https?:\/\//, ""));
}

function feed(each) {
  const lag = each.feed_lag_s !== null && each.feed_lag_s >= 2 ? `, ${each.feed_lag_s} s late` : "";
  return { text: each.feed_lost ? "feed lost" : `${each.source}${lag}`, level: each.feed_lost ? "warn" : null };
}

function errors(each) {
  const total = Object.values(each.errors).reduce((sum, number) => sum + number, 0);
  const kinds = Object.entries(each.errors).map(([kind, number]) => `${number} ${kind}`);
  return { text: count(total), title: [...kinds, each.last_error].filter(Boolean).join(", ") || null, level: total ? "warn" : null };
}

// One replica: everything that is known of it, live for as long as the dialog is open.

import { byId, h, put, sync, text } from "./dom.js";
import { clock, count, micros, percent, rate, seconds, span } from "./format.js";
import { overBudget } from "./pools.js";
import { Sparkline } from "./sparkline.js";

const FACTS = {
  state: (each, now) => `${each.state} · ${standing(each, now)}`,
  breaker: (each) => `${each.breaker.replace("_", "-")}${each.ejections ? ` · ejected ${each.ejections} times` : ""}${each.held ? ` · held back: ${each.held}` : ""}`,
  pool: (each) => each.pool,
  address: (each) => each.url,
  engine: (each) => `${each.engine} ${each.version}`.trim(),
  "step times from": (each) => feed(each).text,
  "requests/s": (each) => rate(each.per_s),
  "in flight": (each) => `${count(each.in_flight)}${each.elsewhere ? ` and ${count(each.elsewhere)} of others` : ""}`,
  "waiting for a connection": (each) => count(each.waiting),
  "TTFT p50, p99": (each) => `${seconds(each.ttft_p50_s)}, ${seconds(each.ttft_p99_s)}`,
  "ITL p50, p99": (each) => `${micros(each.itl_p50_us)}, ${micros(each.itl_p99_us)}`,
  "mean step": (each) => `hooks ${micros(each.hook_us)}, forward ${micros(each.forward_us)}`,
  "hook budget used": (each) => (each.budget_us === null ? "no budget is set" : `${percent(each.budget_use)} of ${micros(each.budget_us)}, ${overBudget(each) || "no step ended"}; ${percent(each.booked)} booked`),
  "KV cache used": (each) => percent(each.cache_usage),
};

export class ReplicaDialog {
  constructor(state) {
    this.state = state;
    this.dialog = byId("replica");
  }

  open(name) {
    this.name = name;
    const readout = h("p", { class: "readout dim num" });
    this.spark = new Sparkline(readout);
    this.facts = Object.fromEntries(Object.keys(FACTS).map((fact) => [fact, h("dd", { class: "num" })]));
    this.errors = h("ol", { class: "history" });
    this.none = h("p", { class: "dim" }, "none since the start");
    this.dialog.replaceChildren(
      h("div", { class: "head" }, h("h2", { id: "replica-title" }, name), h("button", { type: "button", onclick: () => this.dialog.close() }, "Close")),
      h("div", { class: "chart" }, this.spark.element, readout),
      h("dl", { class: "pairs" }, Object.entries(this.facts).flatMap(([fact, place]) => [h("dt", {}, fact), place])),
      h("h3", {}, "Last errors"),
      this.errors,
      this.none,
    );
    this.show();
    this.dialog.showModal();
  }

  show() {
    const each = this.state.item("replicas", this.name);
    if (!each || !this.spark) return;
    this.spark.update(this.state.minuteOf(this.name), this.state.replicaColumns, each.budget_us, 1);
    for (const [fact, said] of Object.entries(FACTS)) text(this.facts[fact], said(each, this.state.time()));
    this.none.hidden = each.last_errors.length > 0;
    sync(this.errors, each.last_errors.map((error, at) => [`${error.at} ${error.kind} ${each.last_errors.length - at}`, error]), errorLine);
  }
}

function errorLine() {
  const at = h("time", { class: "num dim" });
  const kind = h("strong");
  const said = h("span", { class: "dim" });
  return {
    element: h("li", {}, at, " ", kind, " ", said),
    update(error) {
      put(at, "datetime", new Date(error.at * 1000).toISOString());
      text(at, clock(error.at));
      text(kind, errorWord(error));
      text(said, error.kind === "answered" ? "" : error.said);
    },
  };
}

/** Why a replica is in its state, for how long, and when it is back. */
export function standing(each, now) {
  const why = each.why || each.held;
  const back = each.back_at ? `, back on trial in ${span(each.back_at - now)}` : "";
  return `${why ? `${why} · ` : ""}${span(now - each.since)}${back}`;
}

/** What went wrong, in a word or two. */
export const errorWord = ({ kind, said }) => (kind === "answered" ? said : kind.replaceAll("_", " "));

/** Where the times of its steps come from, and how late. */
export function feed(each) {
  const lag = each.feed_lag_s !== null && each.feed_lag_s >= 2 ? `, ${each.feed_lag_s} s late` : "";
  return { text: each.feed_lost ? "feed lost" : `${each.source}${lag}`, level: each.feed_lost ? "warn" : null };
}

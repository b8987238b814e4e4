// A card for each pool: what it does now, its last minute, and where the time of its steps goes.

import { byId, h, put, sync, text } from "./dom.js";
import { count, micros, percent, rate, seconds } from "./format.js";
import { Sparkline } from "./sparkline.js";

const STATES = ["up", "draining", "ejected", "trial", "warming", "resting", "down"];

export function showPools(state, window) {
  sync(byId("pool-cards"), state.items("pools"), (name) => card(name, state, window));
}

function card(name, state, window) {
  const states = h("span", { class: "states" });
  const mark = h("span", { class: "mark" });
  const readout = h("p", { class: "readout dim num", "aria-hidden": "true" });
  const spark = new Sparkline(readout);
  const figures = Object.fromEntries(["per_s", "in_flight", "waiting"].map((key) => [key, h("dd", { class: "big num" })]));
  const latencies = Object.fromEntries(
    ["ttft_p50", "ttft_p99", "itl_p50", "itl_p99"].map((key) => [key, h("td", { class: "num" })]),
  );
  const use = h("span", { class: "num" });
  const meter = h("meter", { min: 0, max: 1, high: 0.8, optimum: 0, "aria-label": `Share of the step budget of ${name} that hooks take` });
  const over = h("p", { class: "readout dim num" });
  const losses = Object.fromEntries(["spills", "rejects", "failed"].map((key) => [key, h("dd", { class: "num" })]));
  const row = (label, first, second) => h("tr", {}, h("th", { scope: "row" }, label), first, second);
  const element = h(
    "article",
    { class: "card", "aria-label": `Pool ${name}` },
    h("header", {}, h("h3", {}, name), mark, states),
    h("dl", { class: "figures" }, pair("requests/s", figures.per_s), pair("in flight", figures.in_flight), pair("queued", figures.waiting)),
    h("div", { class: "chart" }, spark.element, readout),
    h(
      "table",
      { class: "small" },
      h("thead", {}, h("tr", {}, h("td"), h("th", { scope: "col" }, "p50"), h("th", { scope: "col" }, "p99"))),
      h("tbody", {}, row("TTFT", latencies.ttft_p50, latencies.ttft_p99), row("ITL", latencies.itl_p50, latencies.itl_p99)),
    ),
    h("div", {}, h("div", { class: "budget-use" }, h("span", {}, "hook budget used"), meter, use), over),
    h("dl", { class: "losses" }, pair("spilled", losses.spills), pair("rejected", losses.rejects), pair("failed", losses.failed)),
  );
  return {
    element,
    update(pool) {
      put(element, "data-level", pool.available ? null : "bad");
      text(mark, pool.quarantine ? "quarantine" : waysOut(pool).join("; "));
      sync(states, STATES.filter((word) => pool.states[word]).map((word) => [word, pool.states[word]]), (word) => chip(word));
      text(figures.per_s, rate(pool.per_s));
      text(figures.in_flight, count(pool.in_flight));
      text(figures.waiting, count(pool.waiting));
      put(figures.waiting, "data-level", pool.waiting ? "warn" : null);
      text(latencies.ttft_p50, seconds(pool.ttft_p50_s));
      text(latencies.ttft_p99, seconds(pool.ttft_p99_s));
      text(latencies.itl_p50, micros(pool.itl_p50_us));
      text(latencies.itl_p99, micros(pool.itl_p99_us));
      meter.value = Math.min(1, pool.budget_use ?? 0);
      meter.hidden = pool.budget_us === null;
      text(use, pool.budget_us === null ? "no budget is set" : `${percent(pool.budget_use)} of ${micros(pool.budget_us)}`);
      text(over, overBudget(pool));
      for (const [key, place] of Object.entries(losses)) {
        text(place, count(pool[key]));
        put(place, "data-level", pool[key] ? (key === "failed" ? "bad" : "warn") : null);
      }
      const history = state.history[name] ?? { seconds: [], minutes: [] };
      spark.update(window.hour ? history.minutes : history.seconds, state.columns, pool.budget_us, window.hour ? 60 : 1);
    },
  };
}

function waysOut(pool) {
  const spills = pool.spills_to ? [`spills to ${pool.spills_to}`] : [];
  return pool.overflows_to ? [...spills, `when full to ${pool.overflows_to}`] : spills;
}

/** How often hooks took more than they may, in words. */
export function overBudget({ budget_us, over_budget }) {
  if (budget_us === null || over_budget === null) return "";
  return over_budget ? `over it in ${percent(over_budget)} of the seconds` : "never over it in the last minute";
}

function pair(label, value) {
  return h("div", {}, h("dt", {}, label), value);
}

export function chip(word) {
  const element = h("span", { class: "chip", "data-state": word });
  return { element, update: (number) => text(element, typeof number === "number" ? `${number} ${word}` : word) };
}

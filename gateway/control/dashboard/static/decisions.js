// The live tail of decisions. Watches only when asked to: until then the gateway notes none.

import { byId, h, put, text } from "./dom.js";
import { bytes, clock, count, micros, millis } from "./format.js";
import { Stream } from "./stream.js";
import { Table } from "./table.js";

const SHOWN = 60;

export class Decisions {
  constructor(state) {
    this.state = state;
    this.form = byId("decision-filter");
    this.button = byId("tail");
    this.found = [];
    this.number = 0;
    this.table = new Table(byId("decision-table"), "Decisions", columns(), "Press Watch to see requests as they are finished.");
    this.button.addEventListener("click", () => (this.stream ? this.stop() : this.start()));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("change", () => this.stream && this.start());
  }

  /** Offer the pools and rules that there are. */
  offer() {
    for (const [name, section] of [["pool", "pools"], ["rule", "rules"]]) {
      const select = this.form.elements[name];
      const known = new Set([...select.options].map((option) => option.value));
      for (const [key] of this.state.items(section)) if (!known.has(key)) select.append(h("option", { value: key }, key));
    }
  }

  start() {
    this.stream?.close();
    this.found = [];
    const query = new URLSearchParams([...new FormData(this.form)].filter(([, value]) => value));
    this.stream = new Stream(`/api/v1/decisions?${query}`, { event: (_, data) => this.take(data) });
    text(this.button, "Stop");
    put(this.button, "aria-pressed", "true");
    text(this.table.empty, "waiting for the next request …");
    this.leftOut = 0;
    this.count(0);
    this.table.update([]);
  }

  stop() {
    this.stream.close();
    this.stream = null;
    text(this.button, "Watch");
    put(this.button, "aria-pressed", "false");
  }

  take({ decisions, left_out }) {
    this.count(left_out);
    if (!decisions.length) return;
    for (const each of decisions) this.found.unshift([`${(this.number += 1)}`, each]);
    this.found.length = Math.min(this.found.length, SHOWN);
    this.table.update(this.found);
  }

  /** More than the gateway notes in a second are only counted. */
  count(more) {
    this.leftOut += more;
    text(byId("left-out"), this.leftOut ? `· ${count(this.leftOut)} more came too fast to be noted` : "");
  }
}

function columns() {
  return [
    { label: "Time", num: true, show: (each) => clock(each.at) },
    { label: "Status", num: true, show: (each) => ({ text: each.left ? "left" : String(each.status), level: each.status >= 500 ? "bad" : each.status >= 400 || each.left ? "warn" : null }) },
    { label: "Pool", show: pool },
    { label: "Rule", show: (each) => each.rule },
    { label: "Replica", show: (each) => ({ text: each.replica || "–", title: each.attempts > 1 ? `${each.attempts} attempts` : null }) },
    { label: "Cost a step", num: true, show: cost },
    { label: "Predicted", num: true, show: (each) => micros(each.predicted_us) },
    { label: "TTFT", num: true, show: (each) => millis(each.ttft_ms) },
    { label: "Took", num: true, show: (each) => millis(each.took_ms) },
    { label: "Features", show: features },
    { label: "Tenant", show: (each) => ({ text: each.tenant.length > 14 ? `${each.tenant.slice(0, 12)}…` : each.tenant || "–", title: each.tenant }) },
    { label: "Signature", class: "mono", show: (each) => each.signature },
  ];
}

function pool(each) {
  const from = each.quarantined_from ?? each.spilled_from;
  const how = each.quarantined_from ? "quarantined" : "spilled";
  return { text: from ? `${each.pool || "none"} (${how} from ${from})` : each.pool || "none", level: from ? "warn" : null };
}

function cost(each) {
  return { text: micros(each.step_us), title: Object.entries(each.by_hook).map(([hook, us]) => `${hook} ${micros(us)}`).join(", ") || null };
}

const TOLD_ELSEWHERE = new Set(["api", "model", "prompt_bytes", "body_bytes", "max_tokens", "logprobs"]);

function features(each) {
  const { features: all } = each;
  const said = [all.api, ...Object.entries(all).filter(([name]) => !TOLD_ELSEWHERE.has(name)).map(([name, value]) => feature(name, value))];
  if (all.prompt_bytes) said.push(`prompt ${bytes(all.prompt_bytes)}`);
  return said.filter(Boolean).join(", ");
}

function feature(name, value) {
  if (value === true) return name.replaceAll("_", " ");
  if (name.endsWith("_bytes")) return `${name.slice(0, -6).replaceAll("_", " ")} ${bytes(value)}`;
  return name === "grammar" ? value : `${name.replaceAll("_", " ")} ${value}`;
}

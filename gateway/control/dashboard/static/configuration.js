// What is loaded, from where and since when, what became of the last reload, and what the rules take.

import { byId, h, put, sync, text } from "./dom.js";
import { clock, count, span } from "./format.js";
import { Table } from "./table.js";

export class Configuration {
  constructor(state) {
    this.state = state;
    this.table = new Table(byId("rule-table"), "Rules, in their order", columns(), "there are no rules");
    this.source = h("dd", { class: "mono" });
    this.since = h("dd", { class: "num" });
    this.last = h("dd");
    this.failed = h("dd", { "data-level": "bad" });
    this.failedTerm = h("dt", {}, "last failed reload");
    this.problems = h("ul", { class: "problems" });
    byId("loaded").append(
      h("dl", { class: "pairs" }, h("dt", {}, "in force"), this.source, h("dt", {}, "since"), this.since, h("dt", {}, "last reload"), this.last, this.failedTerm, this.failed),
      this.problems,
    );
  }

  show() {
    const loaded = this.state.item("configuration", "loaded");
    if (!loaded) return;
    const more = loaded.files > 1 ? ` and ${loaded.files - 1} more files` : "";
    text(this.source, loaded.source ? loaded.source + more : "given at the start, no file");
    text(this.since, `${clock(loaded.loaded_at)} (${span(this.state.time() - loaded.loaded_at)})`);
    const last = loaded.last_reload;
    put(this.last, "data-level", last?.why ? "bad" : null);
    text(this.last, last ? `${last.outcome} at ${clock(last.at)}, by ${last.trigger}${last.why && !last.problems.length ? `: ${last.why}` : ""}` : "none since the start");
    const failed = loaded.last_failed;
    this.failed.hidden = this.failedTerm.hidden = !failed || failed.at === last.at;
    if (failed) text(this.failed, `${failed.outcome} at ${clock(failed.at)}, by ${failed.trigger}: ${failed.why}`);
    const said = [...(last?.problems ?? []).map((each) => ["bad", each]), ...loaded.warnings.map((each) => ["warn", each])];
    sync(this.problems, said.map(([level, each]) => [each, { level, said: each }]), () => {
      const element = h("li");
      return { element, update: (item) => (put(element, "data-level", item.level), text(element, item.said)) };
    });
    this.rules();
  }

  rules() {
    this.table.update(this.state.items("rules").sort(([, a], [, b]) => a.at - b.at));
  }
}

function columns() {
  return [
    { label: "#", num: true, show: (each) => String(each.at + 1) },
    { label: "Rule", class: "name", show: (_, name) => name },
    { label: "Takes", class: "mono", show: (each) => condition(each.when) },
    { label: "To", show: (each) => [each.to, ...each.fallbacks].join(" → ") },
    { label: "Requests", num: true, show: (each) => count(each.hits) },
    { label: "", show: (each) => (each.dead ? { text: "can't match", title: each.dead, level: "warn" } : each.hits ? "" : { text: "none yet", level: "dim" }) },
  ];
}

function condition(when) {
  if (when === null) return "everything else";
  if (typeof when === "string") return when;
  return Object.entries(when).map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
}

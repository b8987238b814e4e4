// Kinds of requests by what their hooks were seen to cost: what is quarantined, and the dearest of what is not.

import { post } from "./api.js";
import { ask } from "./ask.js";
import { byId, h, put, text } from "./dom.js";
import { bytes, micros, millis, span } from "./format.js";
import { showOffender } from "./offender.js";
import { Table } from "./table.js";

const BARRED = ["pinned", "open", "half_open"];

export class Offenders {
  constructor(state) {
    this.state = state;
    this.table = new Table(byId("offender-table"), "Offenders and quarantine", this.columns(), "Nothing was seen to cost hook time, and nothing is quarantined.");
  }

  show() {
    const rank = (each) => (BARRED.includes(each.state) ? 1e12 : 0) + (each.observed?.mean_us ?? 0);
    this.table.update(this.state.items("offenders").sort(([, a], [, b]) => rank(b) - rank(a)));
  }

  columns() {
    return [
      { label: "Kind of request", class: "name", build: (cell, id) => looks(cell, id, this.state) },
      { label: "Tenant", show: (each) => short(each.kind === "tenant" ? each.key : each.tenant) },
      { label: "Predicted", num: true, show: (each) => ({ text: micros(each.predicted_us), title: "per step" }) },
      { label: "Observed", num: true, show: observed },
      { label: "95 %", num: true, show: (each) => micros(each.observed?.p95_us) },
      { label: "Worst", num: true, show: (each) => micros(each.observed?.max_us) },
      { label: "State", build: (cell) => this.standing(cell) },
      { label: "", class: "actions", build: (cell, id) => this.actions(cell, id) },
    ];
  }

  standing(cell) {
    const chip = h("span", { class: "chip" });
    const why = h("span", { class: "why dim" });
    cell.append(chip, " ", why);
    return (each) => {
      put(chip, "data-state", each.state);
      text(chip, each.state === "closed" ? "let through" : each.state.replace("_", "-"));
      text(why, each.state === "closed" ? "" : `${each.why} · ${when(each, this.state.time())}`);
    };
  }

  actions(cell, id) {
    const release = h("button", { type: "button", class: "quiet operates", "aria-label": `Release ${id.split("/")[1]}` }, "Release");
    cell.append(release);
    let item;
    release.addEventListener("click", () => {
      const said = "It goes where the rules send it, and its trips are forgotten. If it is over the limits still, it trips again.";
      ask({ title: `Release ${item.key}?`, said, verb: "Release" }, (by) =>
        post(`/api/v1/quarantine/${encodeURIComponent(item.key)}/release?kind=${item.kind}`, by),
      );
    });
    return (each) => {
      item = each;
      release.hidden = each.state === "closed";
    };
  }
}

function looks(cell, id, state) {
  const key = h("button", { type: "button", class: "link mono", onclick: () => showOffender(state.item("offenders", id)) });
  const title = h("strong");
  const what = h("span", { class: "dim" });
  cell.append(title, " ", key, h("br"), what);
  return (each) => {
    text(key, each.key);
    put(key, "aria-label", `History of ${each.key}`);
    text(title, each.kind === "tenant" ? "tenant" : each.looks?.title ?? "");
    text(what, describe(each));
  };
}

/** What requests of a kind look like, in a line. */
export function describe(each) {
  const features = each.looks?.features ?? {};
  const said = [];
  if (features.grammar) said.push(`${features.grammar}${features.grammar_bytes ? ` of ${bytes(features.grammar_bytes)}` : ""}`);
  if (features.tools) said.push(`${features.tools} tools`);
  if (features.top_logprobs) said.push(`${features.top_logprobs} top logprobs`);
  if (features.stop) said.push(`${features.stop} stop strings`);
  if (features.stop_regex) said.push(`${features.stop_regex} stop regexes`);
  if (features.n) said.push(`${features.n} sequences`);
  const place = each.looks?.place;
  if (place) said.push(`dearest: ${place.mechanism.replaceAll("_", " ")} at ${place.param}${place.pointer}`);
  else if (each.observed) said.push(dearest(each.observed.by_kind));
  return said.filter(Boolean).join(" · ");
}

function dearest(byKind) {
  const [kind] = Object.entries(byKind).sort(([, a], [, b]) => b - a)[0] ?? [];
  return kind ? `mostly ${kind.replaceAll("_", " ")}` : "";
}

function observed(each) {
  const over = each.observed && each.predicted_us ? each.observed.mean_us / each.predicted_us : null;
  const compile = each.observed?.compiles ? `; compiling ${millis(each.observed.compile_mean_ms)}` : "";
  return {
    text: micros(each.observed?.mean_us),
    level: each.state !== "closed" ? "bad" : over !== null && over > 3 ? "warn" : null,
    title: each.observed ? `mean of ${Math.round(each.observed.steps)} steps${compile}` : null,
  };
}

function when(each, now) {
  const since = each.since ? `for ${span(now - each.since)}` : "";
  if (each.state === "pinned") return `pinned by ${each.author} ${since}`;
  if (each.state === "half_open") {
    const next = each.next_probe ? `, next in ${span(each.next_probe - now)}` : "";
    return `${each.probes ? `${each.good_probes} of ${each.probes} probes good` : "no probe yet"}${each.next_probe > now ? next : ""}`;
  }
  return `${since}${each.until > now ? `, next probe in ${span(each.until - now)}` : ""}`;
}

function short(tenant) {
  if (!tenant) return "–";
  return { text: tenant.length > 18 ? `${tenant.slice(0, 16)}…` : tenant, title: tenant };
}

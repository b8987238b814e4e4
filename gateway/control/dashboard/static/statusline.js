// Is anything wrong, and since when.

import { byId, h, put, sync, text } from "./dom.js";
import { clock, span } from "./format.js";

const WORDS = { ok: "Healthy", warn: "Needs a look", bad: "Something is wrong" };

export function showStatus(state) {
  const line = state.item("status", "line");
  if (!line) return;
  const place = byId("status-line");
  if (!place.level) {
    place.level = h("strong");
    place.list = h("ul");
    place.append(h("div", { class: "verdict" }, h("span", { class: "dot", "aria-hidden": "true" }), place.level), place.list);
  }
  put(place, "data-level", line.level);
  text(place.level, WORDS[line.level]);
  put(byId("status-line"), "data-count", line.findings.length);
  sync(place.list, line.findings.map((each) => [each.key, each]), () => finding(state));
  document.title = line.level === "ok" ? "Steplane" : `(${line.findings.length}) Steplane`;
}

function finding(state) {
  const said = h("span");
  const since = h("span", { class: "dim num" });
  const element = h("li", {}, said, " ", since);
  return {
    element,
    update(item) {
      put(element, "data-level", item.level);
      text(said, item.said);
      text(since, `since ${clock(item.since)} (${span(state.time() - item.since)})`);
    },
  };
}

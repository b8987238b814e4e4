// One kind of request: why it is where it is, what was done to it, and the last steps in which a replica named it.

import { get } from "./api.js";
import { byId, h, text } from "./dom.js";
import { clock, micros, millis, seconds } from "./format.js";
import { describe } from "./offenders.js";

const SHOWN = 6;

/** Open the dialog for an item of the section `offenders`. */
export async function showOffender(item) {
  const dialog = byId("offender");
  const rest = h("div", {}, h("p", { class: "dim" }, "loading …"));
  const parts = [
    h("div", { class: "head" }, h("h2", { id: "offender-title" }, item.looks?.title || item.key), h("button", { type: "button", onclick: () => dialog.close() }, "Close")),
    item.looks?.title ? h("p", { class: "mono dim" }, item.key) : null,
    h("p", {}, describe(item)),
    item.why ? h("p", {}, h("strong", {}, "Why: "), item.why) : null,
    item.advice ? h("p", {}, h("strong", {}, "What helps: "), item.looks?.place?.advice ?? item.advice) : null,
    rest,
  ];
  dialog.replaceChildren(...parts.filter(Boolean));
  dialog.showModal();
  const key = encodeURIComponent(item.key);
  try {
    const [known, named] = await Promise.all([
      get(`/api/v1/quarantine/${key}?kind=${item.kind}`),
      item.kind === "signature" ? get(`/api/v1/quarantine/${key}/steps`) : { steps: [] },
    ]);
    rest.replaceChildren(...costs(known, item), ...running(known), ...history(known), ...steps(named));
  } catch (error) {
    text(rest.firstElementChild, error.message);
  }
}

function costs({ observed }, item) {
  if (!observed) return [];
  const kinds = Object.entries(observed.by_kind).sort(([, a], [, b]) => b - a);
  const rows = [
    ["predicted", micros(item.predicted_us)],
    ["observed, mean", micros(observed.mean_us)],
    ["95 of 100 steps below", micros(observed.p95_us)],
    ["worst step", micros(observed.max_us)],
    ["compiling, mean", observed.compiles ? millis(observed.compile_mean_ms) : "–"],
    ...kinds.map(([kind, us]) => [`of it ${kind.replaceAll("_", " ")}`, micros(us)]),
  ];
  return [h("h3", {}, "Cost of a step"), list(rows)];
}

function list(rows) {
  return h("dl", { class: "pairs" }, rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", { class: "num" }, value)]));
}

function running({ running: attempts }) {
  if (!attempts.length) return [];
  const lines = attempts.map((each) => h("li", {}, h("span", { class: "mono" }, each.request_id), ` on ${each.replica} for ${seconds(each.runs_s)}`));
  return [h("h3", {}, `Running now (${attempts.length})`), h("ul", {}, lines)];
}

function history({ audit }) {
  if (!audit.length) return [];
  const lines = audit.map((each) =>
    h(
      "li",
      {},
      h("time", { class: "num dim", datetime: each.at }, clock(each.at)), " ",
      h("strong", {}, each.event.replaceAll("_", " ")), ` ${each.before.replace("_", "-")} → ${each.after.replace("_", "-")} by ${each.author}`,
      h("br"), h("span", { class: "dim" }, each.why),
    ),
  );
  return [h("h3", {}, "History"), h("ol", { class: "history" }, lines)];
}

function steps({ steps: named }) {
  if (!named.length) return [];
  const lines = named.map((each) =>
    h(
      "li",
      {},
      h("time", { class: "num dim", datetime: each.at }, clock(each.at)),
      ` ${each.what} `, h("strong", { class: "num" }, micros(each.us)), ` on ${each.replica} `,
      h("span", { class: "dim" }, Object.entries(each.by_kind).map(([kind, us]) => `${kind.replaceAll("_", " ")} ${micros(us)}`).join(", ")),
      each.said ? h("div", { class: "dim" }, each.said) : null,
      each.stack ? h("details", {}, h("summary", {}, "Stack of the step thread"), h("pre", { tabindex: 0 }, each.stack.join("\n"))) : null,
    ),
  );
  const rest = lines.splice(SHOWN);
  const more = rest.length ? h("details", {}, h("summary", {}, `${rest.length} more`), h("ol", { class: "history", start: SHOWN + 1 }, rest)) : null;
  return [h("h3", {}, "Last named by a replica"), h("ol", { class: "history" }, lines), more].filter(Boolean);
}

// What would be decided for a request, and why.

import { post } from "./api.js";
import { byId, h } from "./dom.js";
import { micros, millis } from "./format.js";

const EXAMPLE = {
  model: "any",
  messages: [{ role: "user", content: "Hello" }],
  response_format: { type: "json_schema", json_schema: { name: "trip", schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } },
};

export function startExplain() {
  const form = byId("explain-form");
  form.elements.body.value = JSON.stringify(EXAMPLE, null, 1);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = byId("explanation");
    const query = new URLSearchParams({ path: form.elements.path.value, tenant: form.elements.tenant.value });
    try {
      place.replaceChildren(...explanation(await post(`/api/v1/explain?${query}`, form.elements.body.value)));
    } catch (error) {
      place.replaceChildren(h("p", { class: "problem" }, error.message));
    }
  });
}

function explanation(found) {
  const costs = found.contributions.map((each) =>
    h("tr", {}, h("th", { scope: "row" }, `${each.hook}: ${each.name.replaceAll("_", " ")}`), h("td", { class: "num" }, micros(each.step_us)), h("td", { class: "num" }, millis(each.compile_ms))),
  );
  const places = found.places.map((each) => h("li", {}, h("code", {}, `${each.param}${each.pointer}`), ` ${each.mechanism.replaceAll("_", " ")}, ${micros(each.step_us)} a step: ${each.advice}`));
  return [
    h("p", { class: "answer" }, h("strong", {}, found.pool ?? "no pool"), found.route ? ` by rule ${found.route}` : "", h("br"), found.why),
    h("p", { class: "mono dim" }, found.signature),
    h(
      "table",
      { class: "small" },
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "What costs"), h("th", { scope: "col", class: "num" }, "a step"), h("th", { scope: "col", class: "num" }, "compiling"))),
      h("tbody", {}, costs, h("tr", { class: "sum" }, h("th", { scope: "row" }, "reckoned with"), h("td", { class: "num" }, micros(found.cost.step_us)), h("td", { class: "num" }, millis(found.cost.compile_ms)))),
    ),
    places.length ? h("ul", {}, places) : null,
  ].filter(Boolean);
}

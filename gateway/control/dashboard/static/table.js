// Tables whose rows stay where they are while their cells change; on a phone each row reads as a card.

import { h, put, sync, text } from "./dom.js";

/**
 * columns: {name, label, num, show(item, key) → text, a list of elements, or {text, level, title}}.
 * `build`, instead of `show`, makes the cell's content once: (cell, key) → (item) → void.
 */
export class Table {
  constructor(place, caption, columns, empty) {
    this.columns = columns;
    this.body = h("tbody", { role: "rowgroup" });
    const heads = columns.map((each) => h("th", { scope: "col", role: "columnheader", class: each.num ? "num" : null }, each.label));
    this.table = h(
      "table",
      { role: "table" },
      h("caption", { class: "hidden" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)),
      this.body,
    );
    this.empty = h("p", { class: "empty dim" }, empty);
    place.append(h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, this.table), this.empty);
    this.update([]);
  }

  update(items) {
    sync(this.body, items, (key) => this.row(key));
    this.table.parentElement.hidden = !items.length;
    this.empty.hidden = items.length > 0;
  }

  row(key) {
    const element = h("tr", { role: "row" });
    const updates = this.columns.map((column) => {
      const cell = h("td", { role: "cell", class: [column.num ? "num" : "", column.class ?? ""].join(" ").trim() || null, "data-label": column.label });
      element.append(cell);
      if (column.build) return column.build(cell, key);
      return (item) => show(cell, column.show(item, key));
    });
    return {
      element,
      update(item) {
        put(element, "data-state", item.state ?? null);
        for (const update of updates) update(item);
      },
    };
  }
}

function show(cell, value) {
  if (value !== null && typeof value === "object") {
    text(cell, value.text);
    put(cell, "data-level", value.level ?? null);
    put(cell, "title", value.title ?? null);
  } else text(cell, String(value));
}

// Who does it, and why: asked before anything is changed, for the audit log.

import { byId, h, text } from "./dom.js";
import { notify } from "./notice.js";

const NAME = "steplane.author";

/** Ask, then `act({author, reason})`; what goes wrong is said where it was asked. */
export function ask({ title, said, verb }, act) {
  const dialog = byId("ask");
  const author = h("input", { name: "author", required: true, maxlength: 500, autocomplete: "username", value: localStorage.getItem(NAME) ?? "" });
  const reason = h("input", { name: "reason", required: true, maxlength: 500, autocomplete: "off" });
  const problem = h("p", { class: "problem", role: "alert" });
  const go = h("button", { type: "submit", class: "main" }, verb);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "ask-title" }, title),
    h("p", { class: "dim" }, said),
    h("label", { class: "field block" }, "Your name", author),
    h("label", { class: "field block" }, "Reason", reason),
    problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    text(problem, "");
    try {
      localStorage.setItem(NAME, author.value.trim());
      await act({ author: author.value.trim(), reason: reason.value.trim() });
      dialog.close();
      notify(`${verb}: done`);
    } catch (error) {
      text(problem, error.message);
    } finally {
      go.disabled = false;
    }
  });
  dialog.replaceChildren(form);
  dialog.showModal();
  (author.value ? reason : author).focus();
}

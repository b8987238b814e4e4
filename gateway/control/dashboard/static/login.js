// Saying who we are, where the gateway wants to know. Kept for this tab alone.

import { rememberWho } from "./api.js";
import { byId, h } from "./dom.js";

/** Ask for a token, or user and password; `done()` is called with that remembered. */
export function login(said, done) {
  const dialog = byId("login");
  if (dialog.open) return;
  const user = h("input", { name: "user", autocomplete: "username" });
  const secret = h("input", { name: "secret", type: "password", required: true, autocomplete: "current-password" });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "login-title" }, "Who are you?"),
    h("p", { class: "dim" }, said),
    h("label", { class: "field block" }, "User (empty with a token)", user),
    h("label", { class: "field block" }, "Token or password", secret),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Log in")),
  );
  form.addEventListener("submit", () => {
    const pair = new TextEncoder().encode(`${user.value}:${secret.value}`);
    rememberWho(user.value ? `Basic ${btoa(String.fromCharCode(...pair))}` : `Bearer ${secret.value.trim()}`);
    done();
  });
  dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
  dialog.replaceChildren(form);
  dialog.showModal();
}

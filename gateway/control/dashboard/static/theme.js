// Dark, light, or as the machine has it.

import { byId, put, text } from "./dom.js";

const KEY = "steplane.theme";
const THEMES = ["auto", "light", "dark"];

export function startTheme() {
  let theme = localStorage.getItem(KEY) ?? "auto";
  const button = byId("theme");
  const apply = () => {
    put(document.documentElement, "data-theme", theme === "auto" ? null : theme);
    text(button, `Theme: ${theme}`);
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem(KEY, theme);
    apply();
  });
  apply();
}

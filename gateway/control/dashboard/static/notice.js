// A word on what was done, for a few seconds.

import { byId, text } from "./dom.js";

const SHOWN_MS = 4000;
let hiding = 0;

export function notify(said) {
  text(byId("notice"), said);
  clearTimeout(hiding);
  hiding = setTimeout(() => text(byId("notice"), ""), SHOWN_MS);
}

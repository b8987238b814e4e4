// As whom the gateway knows us: who may only read is not offered what would be refused.

import { get } from "./api.js";
import { byId, put, text } from "./dom.js";

export async function showRole() {
  try {
    const { name, role } = await get("/api/v1/whoami");
    put(document.body, "data-role", role);
    text(byId("role"), role === "read" ? `${name}: reading only` : name);
  } catch {
    // The stream says what is wrong; what may not be done is refused in any case.
  }
}

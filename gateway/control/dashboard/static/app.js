// The page: joins the live stream to what shows it. Each part owns its section and knows nothing of the others.

import { Configuration } from "./configuration.js";
import { Decisions } from "./decisions.js";
import { byId, put, text } from "./dom.js";
import { startExplain } from "./explain.js";
import { clock, span } from "./format.js";
import { login } from "./login.js";
import { Offenders } from "./offenders.js";
import { showPools } from "./pools.js";
import { Replicas } from "./replicas.js";
import { showRole } from "./role.js";
import { State } from "./state.js";
import { showStatus } from "./statusline.js";
import { Stream } from "./stream.js";
import { startTheme } from "./theme.js";

const LATE_S = 3;

const state = new State();
const shown = { hour: false };
const parts = { replicas: new Replicas(state), offenders: new Offenders(state), configuration: new Configuration(state) };
const decisions = new Decisions(state);
let heardAt = 0;
let down = "";

function show() {
  showStatus(state);
  showPools(state, shown);
  for (const part of Object.values(parts)) part.show();
  decisions.offer();
  const about = state.item("gateway", "about");
  text(byId("version"), about.version);
  text(byId("about"), `up ${span(state.time() - about.started)} · ${about.clients} client connections${about.workers > 1 ? ` · ${about.workers} workers` : ""} · state in ${about.store}`);
}

function showLive() {
  const late = heardAt && Date.now() / 1000 - heardAt > LATE_S;
  const live = byId("live");
  put(live, "data-level", late || down ? "bad" : "ok");
  put(document.body, "data-stale", late || (down && heardAt) ? true : null);
  if (late || (down && heardAt)) text(live, `stale since ${clock(heardAt)}${down ? ` · ${down}` : ""}`);
  else text(live, heardAt ? "live" : down || "connecting …");
}

const stream = new Stream("/api/v1/events", {
  event(name, data) {
    heardAt = Date.now() / 1000;
    down = "";
    if (name === "snapshot") showRole();
    state.take(name, data);
    show();
    showLive();
  },
  down(why) {
    down = why;
    showLive();
  },
  refused(error) {
    down = "not logged in";
    showLive();
    login(error.message, () => stream.retry());
  },
});

for (const [id, hour] of [["minute", false], ["hour", true]]) {
  byId(id).addEventListener("click", () => {
    shown.hour = hour;
    put(byId("minute"), "aria-pressed", String(!hour));
    put(byId("hour"), "aria-pressed", String(hour));
    showPools(state, shown);
  });
}
setInterval(showLive, 1000);
startTheme();
startExplain();

// A stream of server-sent events that resumes by itself. By fetch and not EventSource, which can't say who we are.

import { ApiError, open } from "./api.js";

const SILENT_S = 4;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 5000;

/**
 * Listens at `path` until `close()`.
 * on.event(name, data), on.up(), on.down(why), on.refused(error): who asks may not, and has to say who he is; `retry()`
 * goes on then.
 */
export class Stream {
  constructor(path, on) {
    this.path = path;
    this.on = on;
    this.closed = false;
    this.pause = FIRST_PAUSE_MS;
    this.run();
  }

  close() {
    this.closed = true;
    this.aborting?.abort();
  }

  retry() {
    this.wake?.();
  }

  async run() {
    while (!this.closed) {
      this.aborting = new AbortController();
      try {
        const response = await open(this.path, this.aborting.signal);
        await this.read(response.body.getReader());
        throw new Error("the gateway ended the stream");
      } catch (error) {
        if (this.closed) return;
        if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
          this.on.refused?.(error);
          await new Promise((resolve) => (this.wake = resolve));
          continue;
        }
        this.on.down?.(error instanceof ApiError ? error.message : "the gateway does not answer");
      }
      await new Promise((resolve) => {
        this.wake = resolve;
        setTimeout(resolve, this.pause);
      });
      this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
    }
  }

  async read(reader) {
    const decoder = new TextDecoder();
    let rest = "";
    for (;;) {
      const silent = setTimeout(() => this.aborting.abort(), SILENT_S * 1000);
      const { done, value } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return;
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(event) {
    let name = "message";
    let data = "";
    for (const line of event.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!data) return;
    this.pause = FIRST_PAUSE_MS;
    this.on.up?.();
    try {
      this.on.event(name, JSON.parse(data));
    } catch (error) {
      console.error(error); // ours, and not the stream's
    }
  }
}

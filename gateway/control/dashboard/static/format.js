// How figures and times read. Knows none of them.

const DASH = "–";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return whole.format(value);
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A count. */
export const count = (value) => (value === null || value === undefined ? DASH : whole.format(value));

/** A rate. */
export const rate = (value) => (value === null || value === undefined ? DASH : digits(value));

/** Microseconds, in the unit that suits. */
export function micros(us) {
  if (us === null || us === undefined) return DASH;
  if (Math.abs(us) >= 1e6) return `${digits(us / 1e6)} s`;
  return Math.abs(us) >= 1000 ? `${digits(us / 1000)} ms` : `${digits(us)} µs`;
}

export const millis = (ms) => micros(ms === null || ms === undefined ? null : ms * 1000);
export const seconds = (s) => micros(s === null || s === undefined ? null : s * 1e6);

/** A share of one, in percent. */
export function percent(share) {
  return share === null || share === undefined ? DASH : `${digits(share * 100)} %`;
}

export function bytes(size) {
  return size >= 1 << 20 ? `${digits(size / (1 << 20))} MiB` : size >= 1024 ? `${digits(size / 1024)} KiB` : `${size} B`;
}

/** How long something took or takes, in one or two units. */
export function span(s) {
  const at = Math.max(0, Math.round(s));
  if (at < 60) return `${at} s`;
  if (at < 3600) return `${Math.floor(at / 60)} min${at < 600 && at % 60 ? ` ${at % 60} s` : ""}`;
  if (at < 86400) return `${Math.floor(at / 3600)} h ${Math.floor((at % 3600) / 60)} min`;
  return `${Math.floor(at / 86400)} d ${Math.floor((at % 86400) / 3600)} h`;
}

/** A time of day, with the date where that is not today's. */
export function clock(at) {
  if (!at) return DASH;
  const time = new Date(typeof at === "number" ? at * 1000 : at);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString("en-GB") : `${time.toLocaleDateString("en-CA")} ${time.toLocaleTimeString("en-GB")}`;
}

// Times: the range of all panels. A duration before now, or from a time to a time; texts have the zone of
// the browser, or UTC where the reader chose it. They are read as the commands read them, see tsdb/model/times.py.
import { offsetName, setZone, time, zone } from "./format.js";

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000, y: 31_536_000_000 };
const RANGE_MS_MIN = 1000;
const RANGE_MS_MAX = 100 * 366 * UNITS.d;

const NUMBER = "[0-9]+(?:\\.[0-9]+)?";
const SECONDS = new RegExp(`^${NUMBER}$`);
const PARTS = new RegExp(`^(?:${NUMBER}(?:ms|[smhdwy]))+$`);
const PART = new RegExp(`(${NUMBER})(ms|[smhdwy])`, "g");

// Milliseconds of a duration such as 10m, 1.5h or 1h30m; a bare number is seconds. NaN for another text.
export function durationMs(text) {
  let found = NaN;
  if (SECONDS.test(text)) found = 1000 * Number(text);
  else if (PARTS.test(text)) found = [...text.matchAll(PART)].reduce((total, [, number, unit]) => total + Number(number) * UNITS[unit], 0);
  const ms = rounded(found);
  return ms > 0 && found < 2 ** 53 ? ms : NaN;
}

// The half of a millisecond goes to the even number, as in Python.
function rounded(number) {
  const low = Math.floor(number);
  return number - low === 0.5 ? low + (low % 2) : Math.round(number);
}

const RELATIVE = /^(now|today|yesterday)(?:-(.+))?$/;
const AGO = /^-([0-9].*[a-z])$/;
const CLOCK = /^(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d+))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?$/;
const MS_MAX = 8.64e15; // The last moment of a Date.
// Numbers that look like the current time in another unit.
const OTHER_UNITS = [
  [/^\d{10}(\.\d*)?$/, "seconds", 1e3],
  [/^\d{16}$/, "microseconds", 1e-3],
  [/^\d{19}$/, "nanoseconds", 1e-6],
];
const FORMS = "A time is such as 2026-01-31 12:00:00, 2026-01-31, -1h, now, now-90m or yesterday.";

// The time of a text, by the clock of the zone where the text names no other. Throws an Error with a text for people.
export function instantMs(text, now) {
  const ago = AGO.exec(text);
  const relative = ago ? ["", "now", ago[1]] : RELATIVE.exec(text);
  const found = relative ? relativeMs(relative, now) : /^-?\d{1,18}$/.test(text) ? Number(text) : clockMs(text);
  for (const [pattern, unit, unitMs] of OTHER_UNITS) {
    if (pattern.test(text)) throw new Error(`${text} looks like ${unit}; a number is milliseconds since 1970: ${Math.floor(Number(text) * unitMs)}.`);
  }
  if (Number.isNaN(found) || Math.abs(found) > MS_MAX) throw new Error(FORMS);
  return found;
}

function relativeMs([, word, length], now) {
  const before = length === undefined ? 0 : durationMs(length);
  if (word === "now") return now - before;
  const back = word === "yesterday" ? 1 : 0;
  const day = new Date(now);
  if (zone() === "UTC") return Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate() - back) - before;
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - back).getTime() - before;
}

function clockMs(text) {
  const [, ...parts] = CLOCK.exec(text) ?? [];
  if (!parts.length) return NaN;
  const [year, month, day, hour, minute, second] = parts.slice(0, 6).map((one) => Number(one ?? 0));
  const [fraction, offset] = parts.slice(6);
  if (month < 1 || month > 12 || day < 1 || day > daysOf(year, month) || hour > 23 || minute > 59 || second > 59) return NaN;
  const isLocal = offset === undefined && zone() !== "UTC";
  const moment = new Date(0);
  if (isLocal) {
    moment.setFullYear(year, month - 1, day);
    moment.setHours(hour, minute, second, 0);
  } else {
    moment.setUTCFullYear(year, month - 1, day);
    moment.setUTCHours(hour, minute, second, 0);
  }
  return moment.getTime() - offsetMs(offset) + Math.round(1000 * Number(`0.${fraction ?? 0}`));
}

function daysOf(year, month) {
  const last = new Date(0);
  last.setUTCFullYear(year, month, 0);
  return last.getUTCDate();
}

// NaN for a zone of a day or more.
function offsetMs(text) {
  if (text === undefined || text === "Z") return 0;
  const hours = Number(text.slice(1, 3));
  const minutes = Number(text.slice(3).replace(":", "") || 0);
  if (hours > 23 || minutes > 59) return NaN;
  return (text.startsWith("-") ? -1 : 1) * (60 * hours + minutes) * UNITS.m;
}

// The text of a duration, in the largest unit with a whole number.
export function durationText(ms) {
  const unit = ["d", "h", "m", "s", "ms"].find((one) => ms % UNITS[one] === 0);
  return `${ms / UNITS[unit]}${unit}`;
}

export class Times {
  // onChange: another range. onZone: another zone of the texts.
  constructor(state, onChange, onZone) {
    this.range = state.range;
    this.start = state.start_ms;
    this.end = state.end_ms;
    this.onChange = onChange;
    this.onZone = onZone;
    this.before = ""; // The range that moved with the clock until a zoom or a move; "" for none.
    this.choice = document.getElementById("range");
    this.from = document.getElementById("from");
    this.to = document.getElementById("to");
    this.duration = document.getElementById("length");
    this.zone = document.getElementById("zone");
    this.zone.options[0].text = `local (${offsetName(-60_000 * new Date().getTimezoneOffset())})`;
    this.zone.value = zone();
    this.zone.addEventListener("change", () => this.#setZone());
    this.fixed = document.getElementById("fixed");
    this.fixed.querySelector("button").addEventListener("click", () => this.setRange(this.before));
    this.choice.addEventListener("change", () => this.#chosen());
    this.duration.addEventListener("change", () => this.#measured());
    for (const input of [this.from, this.to]) input.addEventListener("change", () => this.#typed());
    document.getElementById("earlier").addEventListener("click", () => this.#move(-1));
    document.getElementById("later").addEventListener("click", () => this.#move(1));
    document.getElementById("wider").addEventListener("click", () => this.#widen());
    document.getElementById("times").addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => this.#key(event));
    this.#show();
  }

  get isLive() {
    return this.range !== "";
  }

  parameters() {
    return this.isLive ? { range: this.range } : { start: String(this.start), end: String(this.end) };
  }

  setAbsolute(start, end) {
    if (this.isLive) this.before = this.range;
    this.range = "";
    this.start = start;
    this.end = end;
    this.#changed();
  }

  setRange(range) {
    this.range = range;
    this.#changed();
  }

  #setZone() {
    setZone(this.zone.value);
    this.#show();
    this.onZone();
  }

  #now() {
    const end = this.isLive ? Date.now() : this.end;
    return { start: this.isLive ? end - durationMs(this.range) : this.start, end };
  }

  #move(direction) {
    const { start, end } = this.#now();
    const by = (direction * (end - start)) / 2;
    this.setAbsolute(Math.round(start + by), Math.round(end + by));
  }

  #widen() {
    if (this.isLive) {
      this.setRange(durationText(2 * durationMs(this.range)));
      return;
    }
    const { start, end } = this.#now();
    const by = (end - start) / 2;
    this.setAbsolute(Math.round(start - by), Math.round(end + by));
  }

  #key(event) {
    if (!event.altKey || !event.shiftKey || event.ctrlKey || event.metaKey) return;
    const action = { ArrowLeft: () => this.#move(-1), ArrowRight: () => this.#move(1), ArrowDown: () => this.#widen() }[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  }

  #chosen() {
    if (this.choice.value === "other") {
      document.getElementById("other").hidden = false;
      this.duration.value = this.range;
      this.duration.select();
    } else if (this.choice.value === "absolute") {
      const { start, end } = this.#now();
      this.setAbsolute(Math.round(start), Math.round(end));
    } else {
      this.setRange(this.choice.value);
    }
  }

  #measured() {
    const range = durationMs(this.duration.value.trim());
    const isRange = range >= RANGE_MS_MIN && range <= RANGE_MS_MAX;
    this.duration.setCustomValidity(isRange ? "" : "A range is a duration from 1s to 100y, such as 45m, 1.5h or 1d12h.");
    this.duration.reportValidity();
    if (isRange) this.setRange(durationText(range));
  }

  #typed() {
    const now = Date.now();
    const [start, end] = [this.from, this.to].map((input) => {
      try {
        input.setCustomValidity("");
        return instantMs(input.value.trim(), now);
      } catch (error) {
        input.setCustomValidity(error.message);
        return NaN;
      }
    });
    if (end <= start) this.to.setCustomValidity("The range ends before it begins.");
    if (this.from.reportValidity() && this.to.reportValidity()) this.setAbsolute(start, end);
  }

  #changed() {
    this.#show();
    this.onChange();
  }

  #show() {
    document.getElementById("absolute").hidden = this.isLive;
    document.getElementById("other").hidden = true;
    this.fixed.hidden = this.isLive || !this.before;
    this.fixed.querySelector("button").textContent = `Show the last ${this.before} again`;
    if (this.isLive) {
      if (![...this.choice.options].some((one) => one.value === this.range)) {
        this.choice.add(new Option(`last ${this.range}`, this.range), this.choice.options.length - 2);
      }
      this.choice.value = this.range;
      return;
    }
    this.choice.value = "absolute";
    this.from.value = time(this.start);
    this.to.value = time(this.end);
    for (const input of [this.from, this.to]) input.setCustomValidity("");
  }
}

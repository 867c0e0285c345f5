// Times: the range of all panels. A duration before now, or from a time to a time; texts have the zone of
// the browser, or UTC where the reader chose it.
import { offsetName, setZone, time, typedMs, zone } from "./format.js";

const UNITS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000, y: 31_536_000_000 };

const RANGE = /^(\d+(ms|[smhdwy]))+$/;

export function rangeMs(text) {
  let total = 0;
  for (const [, number, unit] of text.matchAll(/(\d+)(ms|[smhdwy])/g)) total += Number(number) * UNITS[unit];
  return total;
}

function rangeText(ms) {
  for (const unit of ["d", "h", "m"]) if (ms % UNITS[unit] === 0 && ms >= UNITS[unit]) return `${ms / UNITS[unit]}${unit}`;
  return `${Math.max(1, Math.round(ms / 1000))}s`;
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
    return { start: this.isLive ? end - rangeMs(this.range) : this.start, end };
  }

  #move(direction) {
    const { start, end } = this.#now();
    const by = (direction * (end - start)) / 2;
    this.setAbsolute(Math.round(start + by), Math.round(end + by));
  }

  #widen() {
    if (this.isLive) {
      this.setRange(rangeText(2 * rangeMs(this.range)));
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
    const range = this.duration.value.trim();
    const isRange = RANGE.test(range) && rangeMs(range) >= 1000;
    this.duration.setCustomValidity(isRange ? "" : "A range is a duration of at least 1s, such as 45m or 1d12h.");
    this.duration.reportValidity();
    if (isRange) this.setRange(range);
  }

  #typed() {
    const [start, end] = [this.from, this.to].map((input) => typedMs(input.value));
    const wrong = (ms) => (Number.isNaN(ms) ? "A time is such as 2026-01-31 12:00:00, 2026-01-31 12:00 or 2026-01-31." : "");
    this.from.setCustomValidity(wrong(start));
    this.to.setCustomValidity(wrong(end) || (end <= start ? "The range ends before it begins." : ""));
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

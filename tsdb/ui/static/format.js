// Texts of times, durations, numbers and labels.

// Times have the zone of the browser, or UTC where the reader chose it.
let isUtc = storedZone() === "UTC";

function storedZone() {
  try {
    return globalThis.localStorage?.getItem("zone") ?? "";
  } catch {
    return ""; // Storage may be off.
  }
}

// zone: "UTC", or "" for that of the browser.
export function setZone(zone) {
  isUtc = zone === "UTC";
  try {
    globalThis.localStorage?.setItem("zone", zone);
  } catch {
    // Without storage the choice holds for this page alone.
  }
}

export function zone() {
  return isUtc ? "UTC" : "";
}

// What a clock of the zone is ahead of UTC at this time.
export function zoneOffsetMs(ms) {
  return isUtc ? 0 : -60_000 * new Date(ms).getTimezoneOffset();
}

// The zone at this time: UTC, UTC+2, UTC-3:30.
export function zoneName(ms) {
  return offsetName(zoneOffsetMs(ms));
}

export function offsetName(offsetMs) {
  const minutes = Math.round(Math.abs(offsetMs) / 60_000);
  if (!minutes) return "UTC";
  const rest = minutes % 60 ? `:${String(minutes % 60).padStart(2, "0")}` : "";
  return `UTC${offsetMs < 0 ? "-" : "+"}${Math.floor(minutes / 60)}${rest}`;
}

export function time(ms, withDate = true) {
  const text = new Date(ms + zoneOffsetMs(ms)).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
  return withDate ? text : text.slice(11);
}

// A time with its zone.
export function moment(ms) {
  return `${time(ms)} ${zoneName(ms)}`;
}

const DAY_MS = 86_400_000;

// The texts of an axis of time: as short as the distance of its ticks allows; the first tick of a day has the date.
export function tickTimes(ticks) {
  const step = ticks.length > 1 ? ticks[1] - ticks[0] : DAY_MS;
  let date = "";
  return ticks.map((ms) => {
    const [day, clock] = time(ms).split(" ");
    if (step >= DAY_MS) return day;
    const text = step >= 60_000 ? clock.slice(0, 5) : clock;
    const isSame = day === date;
    date = day;
    return isSame ? text : `${text}\n${day}`;
  });
}

export function duration(ms) {
  const absolute = Math.abs(ms);
  if (absolute < 1000) return `${Math.round(ms)} ms`;
  if (absolute < 60_000) return `${+(ms / 1000).toPrecision(3)} s`;
  if (absolute < 3_600_000) return `${+(ms / 60_000).toPrecision(3)} min`;
  if (absolute < 86_400_000) return `${+(ms / 3_600_000).toPrecision(3)} h`;
  return `${+(ms / 86_400_000).toPrecision(3)} d`;
}

export function count(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

const DIGITS = 4;
const WHOLE_MAX = 1e6; // Below, a column of whole numbers has them exactly.

const thousands = (suffix) => [["E", 1e18], ["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]].map(([prefix, factor]) => [prefix + suffix, factor]);
// The names of each unit and their sizes, the largest first. A number has the largest name that it reaches.
const SIZES = {
  "": thousands(""),
  bytes: [["PiB", 2 ** 50], ["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]],
  seconds: [["d", 86_400], ["h", 3_600], ["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]],
  percent: [["%", 1]],
  ratio: [["%", 0.01]],
  per_second: thousands("/s"),
};
const FROM = { d: 172_800, h: 7_200, k: 1e5, "k/s": 1e5 }; // 5,400 s and 12,340 are plainer than 1.5 h and 12.34 k.

export function numberOf(text) {
  return text === "+Inf" ? Infinity : text === "-Inf" ? -Infinity : text === "" ? NaN : Number(text);
}

// The scale of numbers that are read beside each other, those of an axis or of a column: one name of the unit, one number
// of decimals, four significant digits for the largest.
export function scaleOf(numbers, unit) {
  let largest = 0;
  let isWhole = true;
  for (const number of numbers) {
    if (!Number.isFinite(number)) continue;
    largest = Math.max(largest, Math.abs(number));
    isWhole &&= Number.isInteger(number);
  }
  const sizes = SIZES[unit];
  if (isWhole && largest < WHOLE_MAX && (unit === "" || unit === "per_second")) return { unit, name: sizes.at(-1)[0], factor: 1, decimals: 0 };
  const [name, factor] = largest === 0 ? sizes.find(([, size]) => size === 1) ?? sizes[0] : sizes.find(([key, size]) => largest >= (FROM[key] ?? size)) ?? sizes.at(-1);
  const scaled = largest / factor;
  const decimals = scaled === 0 || (isWhole && factor === 1) ? 0 : Math.min(12, Math.max(0, DIGITS - 1 - Math.floor(Math.log10(scaled))));
  return { unit, name, factor, decimals };
}

// The scale for a column of it: a column of whole numbers has no decimals.
export function scaleOfColumn(numbers, scale) {
  const isWhole = numbers.every((one) => !Number.isFinite(one) || (Number.isInteger(one / scale.factor) && Math.abs(one / scale.factor) < WHOLE_MAX));
  return isWhole ? { ...scale, decimals: 0 } : scale;
}

// A number in a scale. One that would lose its digits there has a scale of its own.
export function scaled(number, scale) {
  if (!Number.isFinite(number)) return Number.isNaN(number) ? "NaN" : number < 0 ? "-Inf" : "+Inf";
  const inside = number / scale.factor;
  const isLost = number !== 0 && (Math.abs(inside) < 10 ** (1 - scale.decimals) || Math.abs(inside) >= 1e6) && !(scale.decimals === 0 && Number.isInteger(inside) && Math.abs(inside) < WHOLE_MAX);
  const own = isLost ? scaleOf([number], scale.unit) : scale;
  const text = decimal(number / own.factor, own.decimals, isLost);
  return own.name === "" ? text : `${text} ${own.name}`;
}

function decimal(number, decimals, isAlone) {
  const absolute = Math.abs(number);
  if (absolute >= 1e7 || (absolute > 0 && absolute < 1e-6)) return trimmed(number.toExponential(DIGITS - 1));
  // A number of four digits before the point has no others; beside numbers of its column it keeps their decimals.
  const rounded = absolute >= 1e4 && !Number.isInteger(number) ? +number.toPrecision(DIGITS) : number;
  const text = rounded.toLocaleString("en", { minimumFractionDigits: isAlone ? 0 : decimals, maximumFractionDigits: decimals });
  return text === "-0" || /^-0\.0+$/.test(text) ? text.slice(1) : text;
}

const trimmed = (text) => text.replace(/\.?0+e/, "e").replace("e+", "e");

// A number of an answer alone, without zeros at its end.
export function value(text, unit) {
  const number = numberOf(text);
  if (!Number.isFinite(number)) return text;
  const scale = scaleOf([number], unit);
  const shown = decimal(number / scale.factor, scale.decimals, true);
  return scale.name === "" ? shown : `${shown} ${scale.name}`;
}

// The texts of an axis: the scale's unit, and as few decimals as tell the ticks apart.
export function tickNumbers(ticks, scale) {
  const steps = ticks.length > 1 ? ticks.slice(1).map((one, index) => Math.abs(one - ticks[index])) : ticks.map(Math.abs);
  const step = Math.min(...steps) / scale.factor;
  let decimals = 0;
  while (decimals < 12 && ticks.some((one) => Math.abs(one / scale.factor - +(one / scale.factor).toFixed(decimals)) > step / 1000)) decimals += 1;
  return ticks.map((one) => {
    const text = decimal(one / scale.factor, decimals, false);
    return scale.name === "" ? text : `${text} ${scale.name}`;
  });
}

// Control characters would break a line or hide text; they are shown as their pictures.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, (one) => {
    const code = one.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : `\\u${code.toString(16)}`;
  });
}

const CHARS_MAX = 200;

export function cut(text) {
  return visible(text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX)}…` : text);
}

export function series(labels) {
  const { __name__: name = "", ...rest } = labels;
  const short = (text) => (text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX)}…` : text);
  const pairs = Object.entries(rest).map(([key, text]) => `${cut(key)}=${visible(JSON.stringify(short(text)))}`);
  return cut(name) + (pairs.length || !name ? `{${pairs.join(", ")}}` : "");
}

// An alert by its name and its other labels.
export function alertText({ alertname = "", __name__: _, alertstate: __, ...rest }) {
  return series({ __name__: alertname, ...rest });
}

// Series in the order that people expect: label by label, numbers by size (`le`, +Inf last), texts by letters.
export function compareSeries(one, other) {
  const names = [...new Set([...Object.keys(one), ...Object.keys(other)])].sort();
  for (const name of names) {
    const order = compareTexts(one[name] ?? "", other[name] ?? "");
    if (order) return order;
  }
  return 0;
}

const NUMBER = /^[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+|Inf)$/;

export function compareTexts(one, other) {
  if (one === other) return 0;
  if (NUMBER.test(one) && NUMBER.test(other)) return numberOf(one) - numberOf(other) || (one < other ? -1 : 1);
  return one.localeCompare(other, "en", { numeric: true }) || (one < other ? -1 : 1);
}

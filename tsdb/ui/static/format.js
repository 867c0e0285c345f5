// Texts of times, durations, numbers and labels.

export function time(ms, withDate = true) {
  const text = new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "");
  return withDate ? text : text.slice(11);
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

const PREFIXES = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

// A number of an answer, given as text so that no digit is lost, in a unit.
export function value(text, unit) {
  const number = Number(text === "+Inf" ? "Infinity" : text === "-Inf" ? "-Infinity" : text);
  if (text === "" || !Number.isFinite(number)) return text;
  if (unit === "bytes") {
    let index = 0;
    let scaled = number;
    while (Math.abs(scaled) >= 1024 && index < PREFIXES.length - 1) {
      scaled /= 1024;
      index += 1;
    }
    return `${+scaled.toPrecision(5)} ${PREFIXES[index]}B`;
  }
  if (unit === "seconds") return number !== 0 && Math.abs(number) < 1 ? `${+(number * 1000).toPrecision(5)} ms` : `${shown(number)} s`;
  if (unit === "percent") return `${shown(number)} %`;
  if (unit === "ratio") return `${shown(number * 100)} %`;
  if (unit === "per_second") return `${shown(number)} /s`;
  return shown(number);
}

function shown(number) {
  return Math.abs(number) >= 1e15 ? number.toExponential(6) : (+number.toPrecision(8)).toLocaleString("en", { maximumFractionDigits: 12 });
}

// Control characters would break a line or hide text; they are shown as their pictures.
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g, (one) => {
    const code = one.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : `\\u${code.toString(16)}`;
  });
}

const CHARS_MAX = 200;

function cut(text) {
  return text.length > CHARS_MAX ? `${text.slice(0, CHARS_MAX)}…` : text;
}

export function series(labels) {
  const { __name__: name = "", ...rest } = labels;
  const pairs = Object.entries(rest).map(([key, text]) => `${visible(cut(key))}=${visible(JSON.stringify(cut(text)))}`);
  return visible(cut(name)) + (pairs.length || !name ? `{${pairs.join(", ")}}` : "");
}

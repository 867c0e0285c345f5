// Syntax: the colours of an expression and the bracket that belongs to the one at the cursor. A layer above the box has
// the coloured text; the text of the box itself is transparent, its cursor and its selection are not.
import { element } from "./dom.js";

const CHARS_MAX = 5_000; // Longer texts have no colours: each letter that is typed colours the whole text.
const TOKEN =
  /(?<comment>#[^\n]*)|(?<text>"(?:\\.|[^"\\])*"?|'(?:\\.|[^'\\])*'?|`[^`]*`?)|(?<variable>\$\{\w+(?::\w+)?\}|\$\w+)|(?<word>[a-zA-Z_:][\w:]*)|(?<number>(?:0x[\da-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)(?:ms|[smhdwy])?(?:\d+(?:ms|[smhdwy]))*)|(?<bracket>[()[\]{}])|(?<other>\s+|[^])/g;
const LISTS = new Set(["by", "without", "on", "ignoring", "group_left", "group_right"]);
const KEYWORDS = new Set([...LISTS, "bool", "offset", "and", "or", "unless", "atan2"]);
const CLOSING = { "(": ")", "[": "]", "{": "}" };

// The parts of a text: { text, kind, at }. Kinds: comment, text, variable, number, bracket, keyword, function, label,
// metric, other.
export function parts(text) {
  const found = [...text.matchAll(TOKEN)].map((one) => ({ text: one[0], at: one.index, kind: Object.keys(one.groups).find((kind) => one.groups[kind] !== undefined) }));
  const written = found.filter((one) => one.kind !== "comment" && one.text.trim());
  const opened = []; // For each open bracket whether names in it are labels.
  written.forEach((one, index) => {
    const next = written[index + 1];
    if (one.kind === "bracket") {
      if (one.text in CLOSING) opened.push(one.text === "{" || (one.text === "(" && LISTS.has(written[index - 1]?.text.toLowerCase())));
      else opened.pop();
    } else if (one.kind === "word") {
      one.kind = opened.at(-1) ? "label" : wordKind(one.text.toLowerCase(), next?.text.toLowerCase());
    }
  });
  return found;
}

function wordKind(word, next) {
  if (KEYWORDS.has(word)) return "keyword";
  if (word === "inf" || word === "nan") return "number";
  return next === "(" || next === "by" || next === "without" ? "function" : "metric";
}

// The places of the bracket at the cursor and of its partner: { places, isMatched }. Null where none is at the cursor.
export function pair(found, cursor) {
  const brackets = found.filter((one) => one.kind === "bracket");
  const chosen = brackets.find((one) => one.at === cursor - 1) ?? brackets.find((one) => one.at === cursor);
  if (chosen === undefined) return null;
  const opened = [];
  for (const one of brackets) {
    if (one.text in CLOSING) {
      opened.push(one);
      continue;
    }
    const partner = opened.pop();
    if (one !== chosen && partner !== chosen) continue;
    const isMatched = partner !== undefined && CLOSING[partner.text] === one.text;
    return { places: isMatched ? [partner.at, one.at] : [chosen.at], isMatched };
  }
  return { places: [chosen.at], isMatched: false };
}

export class Colours {
  constructor(input, layer) {
    this.input = input;
    this.layer = layer;
    for (const name of ["selectionchange", "keyup", "click", "focus", "blur"]) input.addEventListener(name, () => this.show());
    input.addEventListener("scroll", () => (this.layer.scrollTop = this.input.scrollTop));
  }

  // Colours the text as it is now. A box that scrolls has a bar, so lines break elsewhere: it has no colours.
  show() {
    const { value, selectionStart, selectionEnd } = this.input;
    const isColoured = value.length <= CHARS_MAX && this.input.scrollHeight <= this.input.clientHeight;
    this.layer.hidden = !isColoured;
    this.input.classList.toggle("coloured", isColoured);
    if (!isColoured) return;
    const found = parts(value);
    const marked = document.activeElement === this.input && selectionStart === selectionEnd ? pair(found, selectionStart) : null;
    const key = JSON.stringify([value, marked]);
    if (key === this.key) return;
    this.key = key;
    this.layer.replaceChildren(...found.map((one) => (one.kind === "other" ? one.text : element("span", { class: classOf(one, marked) }, one.text))), "\n");
  }
}

function classOf({ kind, at }, marked) {
  if (!marked?.places.includes(at)) return `is-${kind}`;
  return marked.isMatched ? `is-${kind} matched` : `is-${kind} unmatched`;
}

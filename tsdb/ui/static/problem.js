// Problem: an error under the expression, with a mark under its place and the next step.
import { element } from "./dom.js";

const LINE_CHARS_MAX = 160;

export function problem(error, query) {
  const parts = [element("p", {}, element("strong", {}, error.message))];
  if (error.line !== null) parts.push(place(error, query), element("p", {}, `Line ${error.line}, column ${error.column}.`));
  parts.push(element("p", {}, error.next));
  if (error.errorType === "unauthorized") parts.push(element("p", {}, element("a", { href: location.href }, "Sign in")));
  return parts;
}

function place({ line, column }, query) {
  const text = query.split("\n")[line - 1] ?? "";
  // Columns count bytes of UTF-8.
  const before = new TextDecoder().decode(new TextEncoder().encode(text).slice(0, column - 1));
  const from = Math.max(0, before.length - LINE_CHARS_MAX / 2);
  const shown = text.slice(from, from + LINE_CHARS_MAX);
  return element("pre", {}, `${shown}\n${" ".repeat(before.length - from)}▲`);
}

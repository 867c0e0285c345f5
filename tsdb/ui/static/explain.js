// Explain: the tree of an expression in a dialog, with the series and the time of each part.
import { dialog, element } from "./dom.js";
import { count, duration, moment, visible } from "./format.js";

const INDENT_EM = 1.2;
const DEPTH_MAX = 12; // Deeper parts are indented no further; they would leave the dialog.

// answer: of `/ui/explain`.
export function showTree({ rows, end_ms: end, left_out: left }) {
  const head = ["part", "kind", "series", "time"].map((name) => element("th", { scope: "col", class: name === "series" || name === "time" ? "number" : null }, name));
  dialog(
    { class: "finder", "aria-label": "Explain" },
    element("div", { class: "bar" }, element("p", { class: "quiet" }, `Each part, evaluated alone at ${moment(end)}.`), element("form", { method: "dialog", class: "bar-end" }, element("button", {}, "Close"))),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tree of the expression" }, element("table", { class: "tree" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows.map(row)))),
    left ? element("p", { class: "quiet" }, `${count(left, "deeper part")} left out.`) : null,
  );
}

function row({ depth, text, kind, series, seconds, error }) {
  const name = element("th", { scope: "row", class: "name" }, visible(text), error ? element("p", { class: "error" }, error) : null);
  name.style.paddingLeft = `${0.5 + INDENT_EM * Math.min(depth, DEPTH_MAX)}em`;
  return element(
    "tr",
    {},
    name,
    element("td", {}, kind),
    element("td", { class: "number" }, series === null ? "" : series.toLocaleString("en")),
    element("td", { class: "number" }, seconds === null ? "" : duration(1000 * seconds)),
  );
}

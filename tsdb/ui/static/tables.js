// Tables of values and of samples.
import { element } from "./dom.js";
import { count, series, time, value } from "./format.js";

export function table(answer, unit) {
  if (!answer.rows_total) {
    return [element("p", { class: "quiet" }, answer.kind === "samples" ? "No samples in this range." : "No series has a value at this time. Check the name and the labels, or another time.")];
  }
  const isSamples = answer.kind === "samples";
  const head = element("tr", {}, element("th", { scope: "col" }, isSamples ? "time (UTC)" : "series"), isSamples ? element("th", { scope: "col" }, "series") : null, element("th", { scope: "col", class: "number" }, "value"));
  const rows = answer.rows.map(([index, ms, text]) => {
    const name = answer.kind === "vector" || isSamples ? series(answer.series[index]) : answer.kind;
    const cell = element("td", { class: "number", title: text }, value(text, unit));
    if (!isSamples) return element("tr", {}, element("th", { scope: "row", class: "name" }, name), cell);
    return element("tr", {}, element("td", { class: "time" }, time(ms)), element("th", { scope: "row", class: "name" }, name), cell);
  });
  const noun = isSamples ? ["sample"] : ["row"];
  const total = isSamples ? `${count(answer.rows_total, ...noun)} of ${count(answer.series_total, "series", "series")}, the newest first` : `${count(answer.rows_total, "series", "series")} at ${time(answer.end_ms)} UTC`;
  const cut = answer.rows.length < answer.rows_total ? `; the first ${answer.rows.length.toLocaleString("en")} are shown` : "";
  return [
    element("p", { class: "quiet caption" }, total + cut),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": isSamples ? "Samples" : "Values" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows))),
  ];
}

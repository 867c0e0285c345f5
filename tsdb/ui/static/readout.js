// Readout: the values of all series at the time under the pointer, sorted, with the nearest line or band marked.
import { element, swatch } from "./dom.js";
import { alertText, moment, scaled, scaleOf, series, value } from "./format.js";
import { boundText } from "./graph.js";
import { bucketsOf, countsAt } from "./heatmap.js";
import { look } from "./look.js";

const ROWS_MAX = 16; // The rows around the nearest; a higher box would cover the graph.

const ALERTS_MAX = 5;

export class Readout {
  constructor(box) {
    this.box = box;
  }

  clear() {
    this.box.hidden = true;
  }

  // isRight: the pointer is in the right half, so the box has the left one.
  show(answer, options, hidden, { x, y, isRight, exemplar = null }) {
    const found = answer === null || x === null ? null : options.axis === "buckets" ? cellAt(answer, options, hidden, x, y) : rowsAt(answer, options, hidden, x, y);
    if (found === null) {
      this.clear();
      return;
    }
    const { rows, at_ms: at } = found;
    const nearest = rows.findIndex((one) => one.isNearest);
    const from = Math.max(0, Math.min(nearest - ROWS_MAX / 2, rows.length - ROWS_MAX));
    const shown = rows.slice(from, from + ROWS_MAX);
    const below = rows.length - from - shown.length;
    this.box.replaceChildren(
      element("p", {}, rows.length ? moment(at) : `${moment(at)}: no value`),
      ...(from ? [element("p", { class: "quiet" }, `${from} more above`)] : []),
      element("table", {}, element("tbody", {}, ...shown.map((one) => row(one, answer, options)))),
      ...(below ? [element("p", { class: "quiet" }, `${below} more below`)] : []),
      ...firing(answer.alerts, at),
      ...example(exemplar, options),
    );
    this.box.classList.toggle("at-left", isRight);
    this.box.hidden = false;
  }
}

// A line for each alert that fires at a time.
function firing(alerts, at) {
  const found = alerts?.series.filter(({ times }) => times.some(([from, to]) => from <= at && at <= to)) ?? [];
  const lines = found.slice(0, ALERTS_MAX).map(({ labels }) => element("p", { class: "firing" }, `⚠ ${alertText(labels)} fires`));
  const more = found.length - lines.length;
  return more ? [...lines, element("p", { class: "quiet" }, `${more} more fire`)] : lines;
}

// The exemplar under the pointer.
function example(exemplar, options) {
  if (exemplar === null) return [];
  const text = `◆ ${scaled(exemplar.value, options.scale)} ${series(exemplar.labels)} of ${series(exemplar.series)}, ${moment(exemplar.at)}`;
  return [element("p", { class: "exemplar" }, text), ...(exemplar.link ? [element("p", { class: "quiet" }, `a click opens ${exemplar.link}`)] : [])];
}

// The counts of the buckets at a time; null without buckets.
function cellAt(answer, options, hidden, x, y) {
  const buckets = bucketsOf(answer, hidden);
  return buckets === null ? null : countsAt(buckets, x, y, (bound) => value(boundText(bound), options.unit));
}

function row({ index, name, number, then, isNearest }, answer, options) {
  if (name !== undefined) return element("tr", { class: isNearest ? "nearest" : null }, element("td", { class: "number" }, scaled(number, scaleOf([number], ""))), element("td", { class: "name" }, name));
  return element(
    "tr",
    { class: isNearest ? "nearest" : null },
    element("td", {}, swatch(look(index, answer.series.length, options))),
    element("td", { class: "number" }, scaled(number, options.scale)),
    answer.earlier === null ? null : element("td", { class: "number quiet" }, then === null ? "" : `${answer.earlier.before} before: ${scaled(then, options.scale)}`),
    element("td", { class: "name" }, series(answer.series[index])),
  );
}

// The drawn series at the step nearest to x: the largest value first, in stacks the highest band.
export function rowsAt(answer, options, hidden, x, y) {
  const step = Math.round((x - answer.first_ms) / answer.step_ms);
  const rows = [];
  let base = 0;
  answer.values.forEach((values, index) => {
    if (hidden.has(index)) return;
    const place = answer.at === null ? step : nearestPlace(answer.at[index], step);
    const number = values[place] ?? null;
    if (number === null || (options.axis === "log" && number <= 0)) return;
    const bottom = options.stack ? base : number;
    const top = options.stack ? base + number : number;
    base = options.stack ? top : 0;
    const at = answer.at === null ? step : answer.at[index][place];
    rows.push({ index, number, then: answer.earlier?.values[index][place] ?? null, at, distance: distance(y, bottom, top), isNearest: false });
  });
  if (options.stack) rows.reverse();
  else rows.sort((one, other) => other.number - one.number);
  const nearest = rows.reduce((best, one) => (best === null || one.distance < best.distance ? one : best), null);
  if (nearest !== null) nearest.isNearest = true;
  return { at_ms: answer.first_ms + (nearest?.at ?? step) * answer.step_ms, rows };
}

// From y to a band; 0 inside of it.
function distance(y, one, other) {
  return Math.max(0, Math.min(one, other) - y, y - Math.max(one, other));
}

// The index of the step nearest to the wanted one.
function nearestPlace(steps, wanted) {
  let low = 0;
  let high = steps.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low > 0 && wanted - steps[low - 1] < steps[low] - wanted ? low - 1 : low;
}

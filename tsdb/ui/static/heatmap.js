// Heatmap: the counts of a histogram's buckets over time. The answer has them as Prometheus has: each bucket with those
// below it, so a cell is the difference of two neighbours.
import { numberOf } from "./format.js";

const ALPHA_MIN = 0.08; // A cell with a single sample among thousands is still seen.

// The buckets of an answer from the lowest bound up: { bounds, times, counts }, one row of counts for each bound. Series
// that differ in other labels are added. Null without buckets.
export function bucketsOf(answer, hidden) {
  const rows = new Map();
  answer.series.forEach((labels, index) => {
    const bound = numberOf(labels.le ?? "");
    if (hidden.has(index) || Number.isNaN(bound)) return;
    const values = answer.values[index];
    const sums = rows.get(bound) ?? values.map(() => null);
    rows.set(bound, sums.map((sum, at) => (values[at] === null || Number.isNaN(values[at]) ? sum : (sum ?? 0) + values[at])));
  });
  if (!rows.size) return null;
  const bounds = [...rows.keys()].sort((one, other) => (one < other ? -1 : 1));
  const [first] = answer.at ?? [null];
  const times = rows.get(bounds[0]).map((_, at) => answer.first_ms + (first === null ? at : first[at]) * answer.step_ms);
  const below = times.map(() => 0);
  const counts = bounds.map((bound) =>
    rows.get(bound).map((sum, at) => {
      if (sum === null) return null;
      const count = Math.max(0, sum - below[at]);
      below[at] = Math.max(below[at], sum);
      return count;
    }),
  );
  return { bounds, times, counts };
}

// The cells to draw: bucket i reaches from i to i + 1 on the axis.
export function cellsOf({ times, counts }, color) {
  const cells = { left: [], right: [], bottom: [], top: [], color: [], alpha: [] };
  const largest = counts.reduce((most, row) => row.reduce((one, count) => Math.max(one, count ?? 0), most), 0);
  const half = times.length > 1 ? (times[1] - times[0]) / 2 : 500;
  counts.forEach((row, bucket) => {
    row.forEach((count, at) => {
      if (!count) return;
      cells.left.push(times[at] - half);
      cells.right.push(times[at] + half);
      cells.bottom.push(bucket);
      cells.top.push(bucket + 1);
      cells.color.push(color);
      cells.alpha.push(ALPHA_MIN + (1 - ALPHA_MIN) * Math.sqrt(count / largest));
    });
  });
  return cells;
}

// The counts at a time, the highest bucket first, with the one at y marked: { at_ms, rows }. A row: { name, number,
// isNearest }.
export function countsAt({ bounds, times, counts }, x, y, nameOf) {
  const at = times.reduce((best, time, index) => (Math.abs(time - x) < Math.abs(times[best] - x) ? index : best), 0);
  const name = (bucket) => `${bucket ? nameOf(bounds[bucket - 1]) : "0"} … ${nameOf(bounds[bucket])}`;
  const rows = bounds.map((_, bucket) => ({ name: name(bucket), number: counts[bucket][at], isNearest: Math.floor(y) === bucket }));
  return { at_ms: times[at], rows: rows.filter((one) => one.number !== null).reverse() };
}

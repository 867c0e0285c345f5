// Heatmap: the counts of a histogram's buckets over time. The answer has those of classic histograms as Prometheus has: each
// bucket with those below it, so a cell is the difference of two neighbours. Those of native histograms are cells already.
import { numberOf } from "./format.js";

const ALPHA_MIN = 0.08; // A cell with a single sample among thousands is still seen.

// The buckets of an answer from the lowest bound up: { lower, bounds, times, counts }, one row of counts for each bound.
// Series that differ in other labels are added. Null without buckets.
export function bucketsOf(answer, hidden) {
  if (answer.heatmap) return nativeBuckets(answer);
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
  return { lower: [0, ...bounds.slice(0, -1)], bounds, times, counts };
}

function nativeBuckets({ heatmap, first_ms: first, step_ms: step }) {
  const [row = []] = heatmap.counts;
  const times = row.map((_, at) => first + at * step);
  return { lower: heatmap.lower.map(numberOf), bounds: heatmap.upper.map(numberOf), times, counts: heatmap.counts };
}

// The place of a value on the axis of buckets: between i and i + 1 in bucket i. Null outside of all of them.
export function placeOf({ lower, bounds }, number) {
  const bucket = bounds.findIndex((bound) => number <= bound);
  if (number === null || Number.isNaN(number) || bucket < 0) return null;
  const [from, to] = [lower[bucket], bounds[bucket]];
  if (!Number.isFinite(from) || !Number.isFinite(to) || to <= from) return bucket + 0.5;
  return bucket + Math.max(0, (number - from) / (to - from));
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
export function countsAt({ lower, bounds, times, counts }, x, y, nameOf) {
  const at = times.reduce((best, time, index) => (Math.abs(time - x) < Math.abs(times[best] - x) ? index : best), 0);
  const name = (bucket) => `${lower[bucket] === 0 ? "0" : nameOf(lower[bucket])} … ${nameOf(bounds[bucket])}`;
  const rows = bounds.map((_, bucket) => ({ name: name(bucket), number: counts[bucket][at], isNearest: Math.floor(y) === bucket }));
  return { at_ms: times[at], rows: rows.filter((one) => one.number !== null).reverse() };
}

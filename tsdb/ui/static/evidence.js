// Evidence: what an answer rests on, as pairs of a term and a sentence.
import { element } from "./dom.js";
import { alertText, count, cut, duration, moment, time, zoneName } from "./format.js";

const STALE_MS = 5 * 60_000;
const NAMES_MAX = 3;
const AHEAD_MS = 60_000;
const FRESH_MS = 1_000;  // The freshness objective.

export function evidence({ view, evidence: found, end_ms: end, step_ms: step, alerts = null }) {
  const pairs = [
    ["newest sample", freshness(found, end)],
    ["from", origin(found)],
    ["lag", lag(found)],
    ["holes", holes(found)],
    ["read", read(found)],
    alerts === null ? null : ["alerts", fired(alerts)],
    view === "graph" ? ["step", { text: duration(step) }] : view === "table" ? ["evaluated at", { text: moment(end) }] : null,
    ["took", took(found)],
  ].filter((one) => one !== null);
  return pairs.map(([term, { text, bad = false, title = null }]) =>
    element("div", { class: bad ? "bad" : null, title }, element("dt", {}, term), element("dd", {}, text)),
  );
}

// A range that ended in the past has no newer samples to wait for.
export function freshness({ newest_ms: newest, now_ms: now }, end) {
  if (newest === null) return { text: "none in this range" };
  const age = now - newest;
  const title = moment(newest);
  if (age < -AHEAD_MS) return { text: `${duration(-age)} in the future: a clock is wrong`, bad: true, title };
  if (age >= 0 && end < now - STALE_MS) return { text: newest > end ? "after this range" : `${duration(end - newest)} before the end of the range`, title };
  if (age < 0) return { text: "now", title };
  return { text: `${duration(age)} old`, bad: age > STALE_MS, title };
}

function origin({ partitions, seams, has_history: hasHistory, from_memory: fromMemory }) {
  if (!partitions.length) return { text: "no store answers", bad: true };
  const starts = partitions.map((one) => `partition ${one.partition}: ${one.coverage_start_ms === null ? "the whole log" : `memory from ${moment(one.coverage_start_ms)}`}`).join("\n");
  if (fromMemory === partitions.length) return { text: "memory", title: starts };
  if (!hasHistory) return { text: "memory; there is no history", bad: true, title: starts };
  if (!seams.length) return { text: "history", title: starts };
  const first = time(seams[0]);
  const last = seams.length > 1 ? `–${time(seams.at(-1), false)}` : "";
  return { text: `history before ${first}${last} ${zoneName(seams[0])}, then memory`, title: starts };
}

function lag({ partitions, partitions_missing: missing }) {
  if (missing > 0) return { text: `${count(missing, "partition")} without a store`, bad: true };
  const behind = partitions.filter((one) => !one.is_ready);
  const worst = partitions.reduce((most, one) => Math.max(most, one.lag_ms ?? 0), 0);
  const isUnknown = partitions.some((one) => one.lag_ms === null);
  const behindBy = (one) => `${one.lag_records ?? "unknown"} records, ${one.lag_ms === null ? "unknown" : duration(one.lag_ms)}`;
  const title = partitions.map((one) => `partition ${one.partition}: ${behindBy(one)}${one.is_ready ? "" : `, not ready: ${one.reason}`}`).join("\n");
  if (behind.length) return { text: `${count(behind.length, "partition")} not ready: ${behind[0].reason}`, bad: true, title };
  if (worst > FRESH_MS) return { text: `${duration(worst)}: the newest samples may be missing`, bad: true, title };
  if (isUnknown) return { text: "unknown: the newest samples may be missing", bad: true, title };
  return { text: worst ? duration(worst) : "none", title };
}

function holes({ holes: found, holes_total: total }) {
  if (!total) return { text: "none" };
  const title = found.map((one) => `partition ${one.partition}: ${time(one.start_ms)} to ${moment(one.end_ms)}, ${one.reason}`).join("\n");
  return { text: `${count(total, "hole")}: ${found[0].reason}`, bad: true, title };
}

// The alerts that fired in the range; the tooltip has their times.
function fired({ series: found, series_total: total }) {
  if (!total) return { text: "none fired" };
  const names = [...new Set(found.map(({ labels }) => labels.alertname ?? ""))];
  const title = found.map(({ labels, times }) => `${alertText(labels)}: ${times.map(([from, to]) => `${time(from)} to ${moment(to)}`).join(", ")}`).join("\n");
  const more = names.length > NAMES_MAX ? ", …" : "";
  return { text: `${count(total, "alert")} fired: ${names.slice(0, NAMES_MAX).map(cut).join(", ")}${more}`, title };
}

function read({ samples, series }) {
  return { text: `${count(samples, "sample")} of ${count(series, "series", "series")}` };
}

function took({ queue_s: queue, read_s: reading, evaluation_s: evaluation }) {
  const title = `waited ${duration(queue * 1000)}, read ${duration(reading * 1000)}, computed ${duration((evaluation - reading) * 1000)}`;
  return { text: duration((queue + evaluation) * 1000), title };
}

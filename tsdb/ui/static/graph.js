// Graph: a figure of BokehJS, filled with the lines of one answer after another.
import { get } from "./api.js";
import { tickNumbers, tickTimes, zone, zoneName, zoneOffsetMs, scaleOf, value } from "./format.js";
import { bucketsOf, cellsOf, placeOf } from "./heatmap.js";
import { look, MANY } from "./look.js";

const EXEMPLAR_PX = 12; // A finger or a pointer this near means the dot.

const figures = new Map();
let isQuiet = false;

// BokehJS warns of ranges without data, which a figure has before its first answer.
function quiet() {
  if (!isQuiet) window.Bokeh.set_log_level("error");
  isQuiet = true;
}

function figure(options) {
  const key = new URLSearchParams(options).toString();
  if (!figures.has(key)) {
    const found = get("/ui/figure", options);
    found.catch(() => figures.delete(key));
    figures.set(key, found);
  }
  return figures.get(key);
}

export class Graph {
  constructor(element, { onZoom, onMove }) {
    this.element = element;
    this.onZoom = onZoom;
    this.onMove = onMove;
    this.key = "";
    this.plot = null;
    this.views = null;
    this.scale = scaleOf([], "");
    this.axis = "linear";
    this.settingRange = false;
    this.exemplars = [];
  }

  // Draws an answer. hidden: indexes of series that are not drawn. focus: the index of a series drawn alone in full.
  async draw(answer, options, hidden = new Set(), focus = null) {
    this.scale = options.scale;
    this.axis = options.axis;
    await this.#open(options);
    this.buckets = options.axis === "buckets" ? bucketsOf(answer, hidden) : null;
    const lines = options.axis === "buckets" ? linesOf(overCells(answer, this.buckets), { ...options, stack: false }, hidden, focus) : linesOf(answer, options, hidden, focus);
    const model = (name) => this.plot.document.get_model_by_name(name);
    const evidence = answer.evidence;
    const seams = evidence.seams;
    model("cells").data = cellsOf(this.buckets ?? { times: [], counts: [] }, look(0, 1, options).color);
    model("areas").data = lines.areas;
    model("lines").data = lines.lines;
    model("points").data = lines.points;
    this.exemplars = options.axis === "buckets" ? [] : answer.exemplars.filter((one) => options.axis !== "log" || one.value > 0);
    model("exemplars").data = { x: this.exemplars.map((one) => one.at), y: this.exemplars.map((one) => one.value) };
    model("seams").data = { x: seams };
    const past = seams.length ? [answer.start_ms] : evidence.from_memory === 0 && evidence.has_history && evidence.partitions.length ? [answer.start_ms] : [];
    model("history").data = { left: past, right: past.map(() => (seams.length ? seams.at(-1) : answer.end_ms)) };
    const strips = answer.alerts?.strips ?? [];
    model("alerts").data = { left: strips.map(([from]) => from), right: strips.map(([, to]) => to) };
    model("holes").data = { left: evidence.holes.map((one) => one.start_ms), right: evidence.holes.map((one) => one.end_ms) };
    model("time_axis").axis_label = zoneName(answer.end_ms);
    this.settingRange = true;
    this.plot.x_range.setv({ start: answer.start_ms, end: answer.end_ms });
    this.settingRange = false;
  }

  // The graph as a picture, on the ground of the page. Null without a graph.
  async picture() {
    if (this.views === null) return null;
    const { canvas } = this.views.roots[0].export("png");
    const whole = document.createElement("canvas");
    Object.assign(whole, { width: canvas.width, height: canvas.height });
    const context = whole.getContext("2d");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, whole.width, whole.height);
    context.drawImage(canvas, 0, 0);
    return new Promise((resolve) => whole.toBlob(resolve, "image/png"));
  }

  close() {
    this.views?.clear();
    this.views = null;
    this.key = "";
    this.element.replaceChildren();
  }

  async #open(options) {
    const { theme, axis, low, high } = options;
    const asked = { theme, axis, ...(low && axis !== "buckets" ? { low } : {}), ...(high && axis !== "buckets" ? { high } : {}) };
    const key = JSON.stringify([asked, zone()]);
    if (key === this.key) return;
    const item = await figure(asked);
    quiet();
    this.close();
    this.views = await window.Bokeh.embed.embed_item(structuredClone(item), this.element);
    this.plot = this.views.roots[0].model;
    this.key = key;
    this.#nameTicks();
    let timer = 0;
    this.plot.x_range.change.connect(() => {
      if (this.settingRange) return;
      clearTimeout(timer);
      timer = setTimeout(() => this.onZoom(Math.round(this.plot.x_range.start), Math.round(this.plot.x_range.end)), 60);
    });
    this.plot.on_event("mousemove", (event) => this.onMove({ x: event.x, y: event.y, isRight: event.sx > this.element.clientWidth / 2, exemplar: this.#exemplarAt(event) }));
    this.plot.on_event("tap", (event) => {
      const { link } = this.#exemplarAt(event) ?? { link: "" };
      if (link) window.open(link, "_blank", "noopener,noreferrer");
    });
    this.plot.on_event("mouseleave", () => this.onMove({ x: null, y: null, isRight: false }));
  }

  // The exemplar nearest to the pointer; null without one within EXEMPLAR_PX.
  #exemplarAt({ x, y }) {
    const { x_range: across, y_range: up } = this.plot;
    const height = this.axis === "log" ? Math.log : (number) => number;
    const distance = (one) => {
      const beside = ((one.at - x) / (across.end - across.start)) * this.plot.inner_width;
      const above = ((height(one.value) - height(y)) / (height(up.end) - height(up.start))) * this.plot.inner_height;
      return Math.hypot(beside, above);
    };
    let nearest = null;
    let least = EXEMPLAR_PX;
    for (const one of this.exemplars) {
      const found = distance(one);
      if (found <= least) [nearest, least] = [one, found];
    }
    return nearest;
  }

  // The axes have the texts of the legend and of the readout. Bokeh's own formatters know neither the zone of the
  // browser nor one unit for all numbers, and its formatters with code of the caller need eval.
  #nameTicks() {
    const times = this.plot.document.get_model_by_name("time_axis");
    const numbers = this.plot.document.get_model_by_name("number_axis");
    times.formatter.doFormat = tickTimes;
    if (this.axis === "buckets") {
      const bounds = () => this.buckets?.bounds ?? [];
      numbers.formatter.doFormat = (ticks) => ticks.map((one) => value(boundText(bounds()[one - 1]), this.scale.unit));
      numbers.ticker.get_ticks = () => ({ major: bucketTicks(bounds().length), minor: [] });
      place(times.ticker, (start, end) => ({ factor: 1, offset: zoneOffsetMs((start + end) / 2) }));
      return;
    }
    const isLog = this.axis === "log";
    numbers.formatter.doFormat = (ticks) => (isLog ? ticks.map((one) => value(String(one), this.scale.unit)) : tickNumbers(ticks, this.scale));
    // Ticks stand at round numbers of the unit that is shown, such as 1 GiB.
    if (!isLog) place(numbers.ticker, () => ({ factor: this.scale.factor, offset: 0 }));
    // Ticks stand at whole hours and days of the zone.
    place(times.ticker, (start, end) => ({ factor: 1, offset: zoneOffsetMs((start + end) / 2) }));
  }
}

const BUCKET_TICKS_MAX = 12;

// A bucket's bound stands at the upper edge of its cells.
function bucketTicks(buckets) {
  const every = Math.max(1, Math.ceil(buckets / BUCKET_TICKS_MAX));
  return Array.from({ length: Math.floor(buckets / every) }, (_, index) => (index + 1) * every);
}

export function boundText(bound) {
  return Math.abs(bound) === Infinity ? (bound > 0 ? "+Inf" : "-Inf") : String(bound);
}

// Lets a ticker find its ticks in other numbers: those of the axis divided by factor, plus offset.
function place(ticker, measure) {
  const found = ticker.get_ticks.bind(ticker);
  ticker.get_ticks = (start, end, range, loc) => {
    const { factor, offset } = measure(start, end);
    const { major, minor } = found(start / factor + offset, end / factor + offset, range, loc);
    const back = (one) => (one - offset) * factor;
    return { major: major.map(back), minor: minor.map(back) };
  };
}

// The lines that are drawn over the cells: quantiles of native histograms, on the axis of the buckets.
function overCells(answer, buckets) {
  const values = answer.heatmap ? answer.values.slice(0, answer.heatmap.lines) : [];
  return { ...answer, values: values.map((row) => row.map((one) => placeOf(buckets, one))), earlier: null };
}

const EARLIER_DASH = [2, 4];

function linesOf(answer, options, hidden, focus) {
  const lines = { xs: [], ys: [], color: [], dash: [], width: [], alpha: [] };
  const points = { x: [], y: [], color: [], marker: [], alpha: [] };
  const areas = { xs: [], ys: [], color: [] };
  const many = answer.values.length >= MANY;
  const below = options.stack ? new Map() : null;
  answer.values.forEach((row, index) => {
    if (hidden.has(index)) return;
    const { color, dash, marker } = look(index, answer.values.length, options);
    const at = answer.at === null ? null : answer.at[index];
    const xs = new Float64Array(row.length);
    const ys = new Float64Array(row.length);
    for (let i = 0; i < row.length; i += 1) {
      const step = at === null ? i : at[i];
      xs[i] = answer.first_ms + step * answer.step_ms;
      ys[i] = row[i] === null || (options.axis === "log" && row[i] <= 0) ? NaN : row[i];
    }
    if (below !== null) stackOn(below, areas, xs, ys, color);
    const alpha = focus === null || focus === index ? 1 : 0.15;
    lines.xs.push(xs);
    lines.ys.push(ys);
    lines.color.push(color);
    lines.dash.push(dash);
    lines.width.push(focus === index ? 3 : many ? 1 : 1.8);
    lines.alpha.push(alpha);
    if (answer.earlier !== null && !options.stack) {
      const then = answer.earlier.values[index];
      lines.xs.push(xs);
      lines.ys.push(Float64Array.from(then, (number) => (number === null || (options.axis === "log" && number <= 0) ? NaN : number)));
      lines.color.push(color);
      lines.dash.push(EARLIER_DASH);
      lines.width.push(1.2);
      lines.alpha.push(0.6 * alpha);
    }
    for (let i = 0; i < ys.length; i += 1) {
      // A point without neighbours has no line. One of value 0 in a stack adds nothing to see.
      const isAlone = Number.isNaN(ys[i - 1] ?? NaN) && Number.isNaN(ys[i + 1] ?? NaN) && !(options.stack && row[i] === 0);
      const isMark = marker !== null && (i + index * 7) % 40 === 20;
      if (Number.isNaN(ys[i]) || !(isAlone || isMark)) continue;
      points.x.push(xs[i]);
      points.y.push(ys[i]);
      points.color.push(color);
      points.marker.push(marker ?? "circle");
      points.alpha.push(alpha);
    }
  });
  return { lines, points, areas };
}

// Raises ys by what is below it at the same times, and adds the area between the two.
function stackOn(below, areas, xs, ys, color) {
  const top = [];
  const bottom = [];
  const times = [];
  for (let i = 0; i < ys.length; i += 1) {
    const base = below.get(xs[i]) ?? 0;
    times.push(xs[i]);
    bottom.push(base);
    top.push(Number.isNaN(ys[i]) ? base : base + ys[i]);
    ys[i] = Number.isNaN(ys[i]) ? NaN : base + ys[i];
    below.set(xs[i], top.at(-1));
  }
  areas.xs.push(Float64Array.from([...times, ...times.toReversed()]));
  areas.ys.push(Float64Array.from([...top, ...bottom.toReversed()]));
  areas.color.push(color);
}

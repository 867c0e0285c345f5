// Graph: a figure of BokehJS, filled with the lines of one answer after another.
import { get } from "./api.js";

// Okabe and Ito's colours, which colour-blind readers tell apart; darker ones on a light ground.
const COLORS = {
  light: ["#0072b2", "#d55e00", "#007a58", "#aa3377", "#8a6100", "#2b6fd6", "#444b59", "#b3261e"],
  dark: ["#56b4e9", "#ff9e5e", "#3ecf9b", "#e58fc0", "#f0c84b", "#8fb4ff", "#c6ccd8", "#ff8a80"],
};
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [14, 4], [5, 2, 1, 2, 1, 2]];
const MARKERS = ["circle", "square", "triangle", "diamond", "inverted_triangle", "hex", "cross", "x"];
const MANY = 40; // From here on lines are thin, and points have no symbols.

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

// How a line looks: by its place, and the same in the legend.
export function look(index, theme) {
  const colors = COLORS[theme];
  return {
    color: colors[index % colors.length],
    dash: DASHES[Math.floor(index / colors.length + index) % DASHES.length],
    marker: MARKERS[index % MARKERS.length],
  };
}

export class Graph {
  constructor(element, { onZoom, onMove }) {
    this.element = element;
    this.onZoom = onZoom;
    this.onMove = onMove;
    this.key = "";
    this.plot = null;
    this.views = null;
    this.settingRange = false;
  }

  // Draws an answer. hidden: indexes of series that are not drawn. focus: the index of a series drawn alone in full.
  async draw(answer, options, hidden = new Set(), focus = null) {
    await this.#open(options);
    const lines = linesOf(answer, options, hidden, focus);
    const model = (name) => this.plot.document.get_model_by_name(name);
    const evidence = answer.evidence;
    const seams = evidence.seams;
    model("areas").data = lines.areas;
    model("lines").data = lines.lines;
    model("points").data = lines.points;
    model("seams").data = { x: seams };
    const past = seams.length ? [answer.start_ms] : evidence.from_memory === 0 && evidence.has_history && evidence.partitions.length ? [answer.start_ms] : [];
    model("history").data = { left: past, right: past.map(() => (seams.length ? seams.at(-1) : answer.end_ms)) };
    model("holes").data = { left: evidence.holes.map((one) => one.start_ms), right: evidence.holes.map((one) => one.end_ms) };
    this.settingRange = true;
    this.plot.x_range.setv({ start: answer.start_ms, end: answer.end_ms });
    this.settingRange = false;
  }

  close() {
    this.views?.clear();
    this.views = null;
    this.key = "";
    this.element.replaceChildren();
  }

  async #open(options) {
    const asked = { theme: options.theme, axis: options.axis, unit: options.unit };
    const key = JSON.stringify(asked);
    if (key === this.key) return;
    const item = await figure(asked);
    quiet();
    this.close();
    this.views = await window.Bokeh.embed.embed_item(structuredClone(item), this.element);
    this.plot = this.views.roots[0].model;
    this.key = key;
    let timer = 0;
    this.plot.x_range.change.connect(() => {
      if (this.settingRange) return;
      clearTimeout(timer);
      timer = setTimeout(() => this.onZoom(Math.round(this.plot.x_range.start), Math.round(this.plot.x_range.end)), 60);
    });
    this.plot.on_event("mousemove", (event) => this.onMove(event.x, event.y));
    this.plot.on_event("mouseleave", () => this.onMove(null, null));
  }
}

function linesOf(answer, options, hidden, focus) {
  const lines = { xs: [], ys: [], color: [], dash: [], width: [], alpha: [] };
  const points = { x: [], y: [], color: [], marker: [], alpha: [] };
  const areas = { xs: [], ys: [], color: [] };
  const many = answer.values.length > MANY;
  const below = options.stack ? new Map() : null;
  answer.values.forEach((row, index) => {
    if (hidden.has(index)) return;
    const { color, dash, marker } = look(index, options.theme);
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
    for (let i = 0; i < ys.length; i += 1) {
      // A point without neighbours has no line; a line of few points shows each.
      const isAlone = Number.isNaN(ys[i - 1] ?? NaN) && Number.isNaN(ys[i + 1] ?? NaN);
      const isMark = !many && (i + index * 7) % 40 === 20;
      if (Number.isNaN(ys[i]) || !(isAlone || isMark)) continue;
      points.x.push(xs[i]);
      points.y.push(ys[i]);
      points.color.push(color);
      points.marker.push(marker);
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

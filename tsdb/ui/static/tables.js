// Tables of values and of samples: a column for each label, as far as they fit beside each other.
import { element } from "./dom.js";
import { compareSeries, count, cut, moment, numberOf, scaled, scaleOf, series, time, zoneName } from "./format.js";
import { Rows } from "./rows.js";

const LABELS_MAX = 10; // More columns than this do not fit a screen; the labels then stand in one.
const NAME = "__name__";

export class Table {
  constructor(container) {
    this.container = container;
    this.rows = null;
    this.kind = "";
    this.caption = element("p", { class: "quiet caption" });
  }

  // The next show builds its parts anew: something else stood in the container.
  clear() {
    this.rows = null;
  }

  show(answer, unit) {
    if (!answer.rows_total) {
      this.clear();
      const text = answer.kind === "samples" ? "No samples in this range." : "No series has a value at this time. Check the name and the labels, or another time.";
      this.container.replaceChildren(element("p", { class: "quiet" }, text));
      return;
    }
    if (this.rows === null || this.kind !== answer.kind) {
      this.rows = new Rows({ label: answer.kind === "samples" ? "Samples" : "Values" });
      this.kind = answer.kind;
      this.container.replaceChildren(this.caption, ...this.rows.parts);
    }
    this.caption.textContent = captionOf(answer);
    const scale = scaleOf(answer.rows.map(([, , text]) => numberOf(text)), unit);
    const columns = columnsOf(answer, scale);
    this.rows.forget();
    this.rows.show({
      columns,
      rows: firstOrder(answer),
      key: (row) => row,
      text: ([index]) => series(answer.series[index]),
      make: (row) => element("tr", {}, ...columns.map((one) => one.cell(row))),
    });
  }
}

function captionOf(answer) {
  const total =
    answer.kind === "samples"
      ? `${count(answer.rows_total, "sample")} of ${count(answer.series_total, "series", "series")}, the newest first`
      : `${count(answer.rows_total, "series", "series")} at ${moment(answer.end_ms)}`;
  return answer.rows.length < answer.rows_total ? `${total}; the first ${answer.rows.length.toLocaleString("en")} are shown` : total;
}

function columnsOf(answer, scale) {
  // A native histogram comes as text: {count:3, sum:5, (1,2]:3}.
  const isText = (text) => answer.kind === "text" || text.startsWith("{");
  const found = answer.kind === "samples" ? [timeColumn(answer.end_ms)] : [];
  return [
    ...found,
    ...nameColumns(answer),
    {
      name: "value",
      isNumber: true,
      of: ([, , text]) => (isText(text) ? text : numberOf(text)),
      cell: ([, , text]) => element("td", { class: "number", title: text }, isText(text) ? text : scaled(numberOf(text), scale)),
    },
  ];
}

function timeColumn(end) {
  return { name: `time (${zoneName(end)})`, isNumber: true, of: ([, ms]) => ms, cell: ([, ms]) => element("td", { class: "time" }, time(ms)) };
}

// The labels that any series has, the name first.
function nameColumns({ kind, series: all }) {
  const names = [...new Set(all.flatMap((labels) => Object.keys(labels)))].sort((one, other) => (one === NAME ? -1 : other === NAME ? 1 : one < other ? -1 : 1));
  const head = (text) => element("th", { scope: "row", class: "name" }, text);
  if (!names.length || names.length > LABELS_MAX) {
    const text = ([index]) => (kind === "vector" || kind === "samples" ? series(all[index]) : kind);
    return [{ name: "series", isNumber: false, of: text, cell: (row) => head(text(row)) }];
  }
  return names.map((name, place) => {
    const text = ([index]) => all[index][name] ?? "";
    const cell = place ? (row) => element("td", { class: "name" }, cut(text(row))) : (row) => head(cut(text(row)));
    return { name: name === NAME ? "name" : cut(name), isNumber: false, of: text, cell };
  });
}

// Samples keep their order, the newest first. Buckets come by the number of their bound.
function firstOrder({ kind, rows, series: all }) {
  if (kind !== "vector" || !all.some((labels) => "le" in labels)) return rows;
  return [...rows].sort(([one], [other]) => compareSeries(all[one], all[other]));
}

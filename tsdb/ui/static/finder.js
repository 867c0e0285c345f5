// Finder: a list of the metrics, searched by a part of a name or a help, in a dialog; a click inserts one. And the start
// of an empty panel: examples over the metrics that are there, or how to send some.
import { ask } from "./api.js";
import { copy } from "./copying.js";
import { dialog, element } from "./dom.js";
import { count, visible } from "./format.js";

const WAIT_MS = 120;
const PLAIN = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/;

export function selectorOf(name) {
  return PLAIN.test(name) ? name : `{${JSON.stringify(name)}}`;
}

// Opens the dialog. take: gets the selector of the metric that was chosen.
export function find(take) {
  const rows = element("tbody", {});
  const total = element("p", { class: "quiet", role: "status" });
  const search = element("input", { type: "search", class: "search", placeholder: "part of a name or of its help", "aria-label": "Search metrics", autocomplete: "off" });
  const head = element("tr", {}, ...["metric", "type", "unit", "series", "help"].map((name) => element("th", { scope: "col", class: name === "series" ? "number" : null }, name)));
  const box = dialog(
    { class: "finder", "aria-label": "Metrics" },
    element("div", { class: "bar" }, search, element("form", { method: "dialog", class: "bar-end" }, element("button", {}, "Close"))),
    total,
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Metrics" }, element("table", { class: "metrics" }, element("thead", {}, head), rows)),
  );
  let running = null;
  let timer = 0;
  const choose = (name) => {
    box.close();
    take(selectorOf(name));
  };
  const load = async () => {
    running?.abort();
    const controller = new AbortController();
    running = controller;
    try {
      const found = await ask("/ui/metrics", { search: search.value }, controller.signal);
      if (controller.signal.aborted) return;
      rows.replaceChildren(...found.rows.map((one) => metricRow(one, choose)));
      const cut = found.rows.length < found.found ? `; the first ${found.rows.length} are shown` : "";
      const matching = search.value.trim() ? `${found.found.toLocaleString("en")} of ` : "";
      total.textContent = `${matching}${count(found.total, "metric")} in memory${cut}.`;
    } catch (error) {
      if (!controller.signal.aborted) total.textContent = `${error.message} ${error.next ?? ""}`;
    }
  };
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(load, WAIT_MS);
  });
  box.addEventListener("close", () => {
    running?.abort();
    clearTimeout(timer);
  });
  search.focus();
  load();
}

function metricRow({ name, kind, unit, series, help }, choose) {
  const labels = element("p", { class: "quiet labels", hidden: true });
  const more = element("button", { type: "button", class: "sort", "aria-label": `Labels of ${visible(name)}`, onclick: () => showLabels(name, labels) }, "labels");
  return element(
    "tr",
    {},
    element("th", { scope: "row", class: "name" }, element("button", { type: "button", class: "series", onclick: () => choose(name) }, visible(name)), labels),
    element("td", {}, kind),
    element("td", {}, visible(unit)),
    element("td", { class: "number" }, series === null ? "" : series.toLocaleString("en")),
    element("td", {}, visible(help), " ", more),
  );
}

async function showLabels(name, place) {
  try {
    const { labels } = await ask("/ui/metrics", { name });
    place.textContent = labels.length ? labels.map(visible).join(", ") : "no labels";
  } catch (error) {
    place.textContent = error.message;
  }
  place.hidden = false;
}

// The elements of an empty panel. run: runs an expression. Nothing while the server does not answer: the page works on.
export async function start(run, canWrite) {
  let found;
  try {
    found = await ask("/ui/metrics", {});
  } catch {
    return [];
  }
  if (!found.total) return sending(canWrite);
  return [
    element("p", { class: "quiet" }, `${count(found.total, "metric")} in memory. Type an expression, open "Metrics", or begin with an example:`),
    element("ul", { class: "examples" }, ...found.examples.map(({ text, query }) => element("li", {}, element("button", { type: "button", class: "series", onclick: () => run(query) }, query), " ", element("span", { class: "quiet" }, text)))),
  ];
}

function sending(canWrite) {
  if (!canWrite) return [element("p", { class: "quiet" }, "There are no samples yet. This server answers queries alone; send samples to a gateway.")];
  const texts = {
    "One sample, from a shell": `curl --data-binary 'temperature,room=kitchen value=21.5' ${location.origin}/write`,
    "Prometheus, in prometheus.yml": `remote_write:\n  - url: ${location.origin}/api/v1/write`,
  };
  return [
    element("p", { class: "quiet" }, "There are no samples yet. Send some, then run an expression here:"),
    ...Object.entries(texts).flatMap(([name, text]) => [
      element("p", {}, `${name} `, element("button", { type: "button", onclick: () => copy(text, name) }, "Copy")),
      element("pre", { class: "lines", tabindex: "0" }, text),
    ]),
  ];
}

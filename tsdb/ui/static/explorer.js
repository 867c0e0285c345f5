// Explorer: the panels, the range that they share, the link, and the refresh.
import { Board, linkOf } from "./board.js";
import { copy } from "./copying.js";
import { Panel } from "./panel.js";
import { Refresh } from "./refresh.js";
import { Times } from "./times.js";

const container = document.getElementById("panels");
const state = JSON.parse(container.dataset.view);
const panels = [];

function view() {
  const panelOf = ({ state: panel }) => ({ ...panel, hide: named(panel.hide), only: named(panel.only) });
  return { times: times.parameters(), refresh_s: state.refresh_s, title: state.title, board: state.board, panels: panels.map(panelOf) };
}

function link() {
  return `${location.pathname}?${linkOf(view(), state.version)}`;
}

// The series that fit into a link.
function named(series) {
  return series.filter((one) => one.length <= state.series_chars_max).slice(0, state.series_max);
}

const page = {
  canWrite: state.can_write,
  times: () => times.parameters(),
  // isStep: the browser's Back button comes back to what was before.
  changed(isStep = false) {
    const url = link();
    if (url === location.pathname + location.search) return;
    if (isStep) history.pushState(null, "", url);
    else history.replaceState(null, "", url);
  },
  zoom(start, end) {
    if (end - start < 1000) return;
    times.setAbsolute(start, end);
  },
  remove(panel) {
    panels.splice(panels.indexOf(panel), 1);
    panel.close();
    if (!panels.length) add();
    this.changed(true);
    panels[0].input.focus();
  },
};

const times = new Times(
  state,
  () => {
    page.changed(true);
    runAll();
  },
  showAll,
);

function add(settings = { query: "", view: "graph", unit: "", axis: "linear", stack: false, symbols: false, losses: false, hide: [], only: [], step: "", low: "", high: "", title: "", compare: "", alerts: "" }) {
  const panel = new Panel(page, { ...settings });
  panels.push(panel);
  container.append(panel.root);
  panel.attached();
  document.getElementById("add").disabled = panels.length >= state.panels_max;
  return panel;
}

function runAll(isRefresh = false) {
  return Promise.all(panels.map((panel) => panel.run(isRefresh)));
}

function showAll() {
  panels.forEach((panel) => panel.show());
}

const refresh = new Refresh(state, times, () => runAll(true), () => page.changed());

new Board(state, view, () => {
  page.changed(true);
  showAll();
});

document.getElementById("copy-link").addEventListener("click", () => copy(new URL(link(), location.href).href, "Link"));

document.getElementById("add").addEventListener("click", () => {
  add().input.focus();
  page.changed(true);
});
document.addEventListener("theme", showAll);
window.addEventListener("popstate", () => location.reload());

state.panels.forEach((one) => add(one));
panels[0].input.focus();
runAll();

// Board: the panels of a page as an address and as a file, and the look of a page that is read and not written.
import { dialog, element } from "./dom.js";
import { save } from "./copying.js";

const KIND = "kafka-tsdb board";
const VERSION = 1;
const BYTES_MAX = 1 << 20;
const TEXTS = ["view", "unit", "axis", "step", "low", "high", "title", "compare", "alerts"];
const FLAGS = ["stack", "symbols", "losses"];
const LISTS = ["hide", "only"];
const DEFAULTS = { view: "graph", axis: "linear" };

// The parameters of the address of a view: { times, refresh_s, title, board, panels }.
export function linkOf(view, version) {
  const found = new URLSearchParams({ v: version, ...view.times });
  if (view.refresh_s) found.set("refresh", String(view.refresh_s));
  if (view.title) found.set("title", view.title);
  if (view.board) found.set("board", "1");
  view.panels.forEach((panel, index) => {
    const prefix = `p${index}.`;
    found.set(`${prefix}q`, panel.query);
    for (const name of TEXTS) if (panel[name] && panel[name] !== DEFAULTS[name]) found.set(prefix + name, panel[name]);
    for (const name of FLAGS) if (panel[name]) found.set(prefix + name, "1");
    for (const name of LISTS) panel[name]?.forEach((one) => found.append(prefix + name, one));
  });
  return found;
}

// The text of a file.
export function textOf(view) {
  const plain = (panel) => Object.fromEntries(Object.entries(panel).filter(([name, value]) => value && value !== DEFAULTS[name] && value.length !== 0));
  return JSON.stringify({ kind: KIND, version: VERSION, title: view.title, ...view.times, refresh_s: view.refresh_s, panels: view.panels.map(plain) }, null, 2);
}

// The view of a file; what a link would not have is left out, and the server names values that it cannot read. Throws
// an Error with a text for people.
export function viewOf(text) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new Error(`This file is no JSON: ${error.message}`);
  }
  if (data?.kind !== KIND || !Array.isArray(data.panels)) throw new Error(`This file is no board: it has no "kind": "${KIND}" with "panels". "Save as a file" writes one.`);
  if (data.version !== VERSION) throw new Error(`This board has version ${data.version}; this page reads version ${VERSION}.`);
  const asText = (value) => (typeof value === "string" || Number.isFinite(value) ? String(value) : "");
  const times = Object.fromEntries(["range", "start", "end"].map((name) => [name, asText(data[name])]).filter(([, value]) => value));
  const panels = data.panels.map((panel) => ({
    query: asText(panel?.query),
    ...Object.fromEntries(TEXTS.map((name) => [name, asText(panel?.[name])])),
    ...Object.fromEntries(FLAGS.map((name) => [name, panel?.[name] === true])),
    ...Object.fromEntries(LISTS.map((name) => [name, Array.isArray(panel?.[name]) ? panel[name].map(asText) : []])),
  }));
  return { times, refresh_s: Number.isFinite(data.refresh_s) ? data.refresh_s : 0, title: asText(data.title), board: true, panels };
}

export class Board {
  // view: the page's view now. changed: the title or the look is another. version: of links.
  constructor(state, view, changed) {
    this.state = state;
    this.view = view;
    this.changed = changed;
    this.choice = document.getElementById("board");
    this.title = document.getElementById("title");
    this.heading = document.querySelector("main > h1");
    this.file = element("input", { type: "file", accept: "application/json,.json", hidden: true, onchange: () => this.#open() });
    document.body.append(this.file);
    this.title.value = state.title;
    this.title.addEventListener("change", () => {
      this.state.title = this.title.value.trim();
      this.#show();
      this.changed();
    });
    this.choice.addEventListener("change", () => this.#chosen());
    this.#show();
  }

  #chosen() {
    const action = this.choice.value;
    this.choice.value = "";
    if (action === "save") {
      const name = this.state.title.replace(/[^\w.-]+/g, "-").replace(/^-+|-+$/g, "") || "board";
      save(new Blob([textOf(this.view())], { type: "application/json" }), `${name}.json`);
    } else if (action === "open") {
      this.file.value = "";
      this.file.click();
    } else {
      this.state.board = action === "read";
      this.#show();
      this.changed();
    }
  }

  #show() {
    const { title, board } = this.state;
    document.getElementById("main").classList.toggle("board", board);
    this.heading.classList.toggle("hidden", !(board && title));
    this.heading.textContent = title || "Explorer";
    document.title = `${title || "Explorer"} · kafka-tsdb`;
    for (const one of this.choice.options) if (one.value === "read" || one.value === "write") one.hidden = (one.value === "read") === board;
  }

  async #open() {
    const [file] = this.file.files;
    if (file === undefined) return;
    try {
      if (file.size > BYTES_MAX) throw new Error(`This file has ${file.size.toLocaleString("en")} bytes; a board has at most ${BYTES_MAX.toLocaleString("en")}.`);
      location.assign(`${location.pathname}?${linkOf(viewOf(await file.text()), this.state.version)}`);
    } catch (error) {
      dialog({ "aria-label": "The board was not opened" }, element("p", {}, error.message), element("form", { method: "dialog" }, element("button", {}, "Close")));
    }
  }
}

// Panel: one expression and its answer. A new run ends the one before it; the server then ends its query.
import { ask, Problem } from "./api.js";
import { Completion } from "./complete.js";
import { copy, save } from "./copying.js";
import { element, say } from "./dom.js";
import { evidence } from "./evidence.js";
import { showTree } from "./explain.js";
import { find, start } from "./finder.js";
import { count, moment, numberOf, scaleOf } from "./format.js";
import { Graph } from "./graph.js";
import { openHistory, remember } from "./history.js";
import { Legend } from "./legend.js";
import { problem } from "./problem.js";
import { Readout } from "./readout.js";
import { Colours } from "./syntax.js";
import { Table } from "./tables.js";

const POINTS_MIN = 200;
const FOCUSED_MAX = 100;
const TYPES = { csv: "text/csv", json: "application/json" };
const FORMS = { cli: "Command", python: "Python", grafana: "Grafana panel" };

let numbers = 0;

export class Panel {
  // page: times(), changed(isStep), zoom(start, end), remove(panel).
  constructor(page, state) {
    this.page = page;
    this.state = state;
    this.answer = null;
    this.drawn = null; // The options with which the answer was drawn.
    this.running = null;
    this.root = document.getElementById("panel").content.firstElementChild.cloneNode(true);
    numbers += 1;
    this.number = numbers;
    this.#bind();
  }

  find(selector) {
    return this.root.querySelector(selector);
  }

  // The page has the panel now, so its texts have sizes.
  attached() {
    this.#fit();
  }

  // Runs the expression; resolves when it is drawn, refused or overtaken. isRefresh: the answer may be a second old, for
  // the server gives pages that refresh the same panel one answer.
  async run(isRefresh = false) {
    this.running?.abort();
    this.#takeQuery();
    if (!this.state.query.trim()) {
      this.#clear();
      await this.#begin();
      return;
    }
    const controller = new AbortController();
    this.running = controller;
    this.root.setAttribute("aria-busy", "true");
    try {
      const view = this.state.view;
      const parameters = isRefresh ? { ...this.#parameters(), refresh: "1" } : this.#parameters();
      const answer = await ask(`/ui/${view}`, parameters, controller.signal);
      if (controller.signal.aborted) return;
      this.answer = { view, ...answer };
      await this.show();
      say(`${count(answer.series_total, "series", "series")} shown.`);
    } catch (error) {
      if (error.name !== "AbortError") this.#refuse(error);
    } finally {
      if (this.running === controller) {
        this.running = null;
        this.root.removeAttribute("aria-busy");
      }
    }
  }

  stop() {
    this.running?.abort();
  }

  close() {
    this.stop();
    this.graph.close();
    this.root.remove();
  }

  // Shows the last answer again, with the options as they are now.
  async show() {
    const answer = this.answer;
    if (answer === null) return;
    const options = this.options();
    this.drawn = options;
    this.#notes(answer);
    this.evidence.replaceChildren(...evidence(answer));
    this.evidence.hidden = false;
    if (answer.view === "graph" && !answer.series.length) {
      this.graph.close();
      this.table.clear();
      this.legend.show(answer, options);
    } else if (answer.view === "graph") {
      await this.graph.draw(answer, options, this.legend.hidden(answer));
      this.find(".graph").setAttribute("aria-label", `Graph of ${this.state.query}: ${count(answer.series_total, "series", "series")}; the table below has the numbers`);
      this.table.clear();
      this.legend.show(answer, options);
    } else {
      this.graph.close();
      this.legend.clear();
      this.table.show(answer, options.unit);
    }
    this.readout.clear();
    this.problem.hidden = true;
  }

  options() {
    const { axis, unit, stack, symbols, low, high } = this.state;
    return { theme: document.documentElement.dataset.theme, axis, unit, stack, symbols, low, high, scale: scaleOf(this.#numbers(), unit) };
  }

  // The numbers beside a graph; they share one scale with its axis.
  #numbers() {
    if (this.answer?.view !== "graph") return [];
    return this.answer.statistics.flatMap((one) => Object.values(one).map(numberOf));
  }

  #parameters() {
    const losses = this.state.losses ? { allow_holes: "1", allow_stale: "1" } : {};
    const points = Math.max(POINTS_MIN, this.find(".graph").clientWidth);
    const { query, stack, step, compare, alerts, view, axis } = this.state;
    // Bands and cells are added step by step, so all series need the same steps.
    const isAdded = stack || axis === "buckets";
    const isCompared = compare && view === "graph" && !isAdded;
    return { query, points: String(points), stack: isAdded ? "1" : "0", ...(axis === "buckets" && view === "graph" ? { heatmap: "1" } : {}), ...(step ? { step } : {}), ...(isCompared ? { compare } : {}), ...(alerts && view === "graph" ? { alerts } : {}), ...losses, ...this.page.times() };
  }

  #bind() {
    this.input = this.find("textarea");
    this.problem = this.find(".problem");
    this.evidence = this.find(".evidence");
    this.input.id = `expression-${this.number}`;
    this.find(".query label").htmlFor = this.input.id;
    this.root.setAttribute("aria-label", `Panel ${this.number}`);
    this.input.value = this.state.query;
    this.completion = new Completion(this.input, this.find(".completions"));
    this.colours = new Colours(this.input, this.find(".colours"));
    this.readout = new Readout(this.find(".readout"));
    this.graph = new Graph(this.find(".graph"), {
      onZoom: (start, end) => this.page.zoom(start, end),
      onMove: (place) => this.readout.show(this.answer, this.drawn, this.answer && this.legend.hidden(this.answer), place),
    });
    this.table = new Table(this.find(".rows"));
    this.legend = new Legend(this.find(".rows"), this.state, (focus, changed) => this.#redraw(focus, changed));
    this.input.addEventListener("input", () => this.#fit());
    this.input.addEventListener("change", () => this.#fit());
    this.input.addEventListener("keydown", (event) => this.#key(event));
    this.find("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#bindOptions();
    this.find(".copy").addEventListener("change", (event) => this.#copy(event.target));
    this.find(".save").addEventListener("change", (event) => this.#save(event.target));
    this.find(".find").addEventListener("click", () => find((text) => this.#insert(text)));
    this.find(".past").addEventListener("click", () => openHistory((query) => this.#replace(query)));
    this.find(".format").addEventListener("click", () => this.#format());
    this.find(".explain").addEventListener("click", () => this.#explain());
    this.find(".remove").addEventListener("click", () => this.page.remove(this));
  }

  #bindOptions() {
    const set = (name, value, runs) => {
      this.state[name] = value;
      this.#showOptions();
      this.page.changed();
      if (runs) this.run();
      else this.show().catch((error) => this.#refuse(error));
    };
    this.find(".unit").addEventListener("change", (event) => set("unit", event.target.value, false));
    this.find(".axis").addEventListener("change", (event) => set("axis", event.target.value, [event.target.value, this.state.axis].includes("buckets")));
    for (const name of ["stack", "losses"]) this.find(`.${name}`).addEventListener("change", (event) => set(name, event.target.checked, true));
    for (const name of ["step", "compare", "alerts"]) this.find(`.${name}`).addEventListener("change", (event) => set(name, event.target.value.trim(), true));
    for (const name of ["low", "high"]) this.find(`.${name}`).addEventListener("change", (event) => set(name, event.target.value.trim(), true));
    this.find(".title").addEventListener("change", (event) => set("title", event.target.value.trim(), false));
    this.find(".symbols").addEventListener("change", (event) => set("symbols", event.target.checked, false));
    for (const button of this.root.querySelectorAll(".views button")) button.addEventListener("click", () => set("view", button.dataset.view, true));
    this.#showOptions();
  }

  #showOptions() {
    this.find(".unit").value = this.state.unit;
    this.find(".axis").value = this.state.axis;
    this.find(".stack").checked = this.state.stack;
    this.find(".losses").checked = this.state.losses;
    for (const name of ["step", "compare", "alerts", "low", "high", "title"]) this.find(`.${name}`).value = this.state[name];
    this.#showTitle();
    this.find(".symbols").checked = this.state.symbols;
    for (const button of this.root.querySelectorAll(".views button")) button.setAttribute("aria-pressed", String(button.dataset.view === this.state.view));
    for (const name of ["axis", "stack", "symbols", "step", "compare", "alerts", "low"]) this.find(`.${name}`).parentElement.hidden = this.state.view !== "graph";
  }

  // The heading on a board.
  #showTitle() {
    this.find("h2").textContent = this.state.title || this.state.query;
  }

  #key(event) {
    if (event.defaultPrevented) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.#submit();
    } else if (event.key === "Escape") {
      this.stop();
    } else if (event.altKey && event.shiftKey && event.code === "KeyF") {
      event.preventDefault();
      this.#format();
    }
  }

  // What an empty panel shows, unless its reader has begun to type.
  async #begin() {
    const parts = await start((query) => this.#replace(query), this.page.canWrite);
    if (!this.state.query.trim() && this.running === null) this.find(".rows").replaceChildren(...parts);
  }

  // Runs another expression instead.
  #replace(query) {
    this.input.value = query;
    this.#fit();
    this.#submit();
    this.input.focus();
  }

  async #format() {
    if (!this.input.value.trim()) return;
    try {
      const { text } = await ask("/ui/format", { query: this.input.value });
      this.input.value = text;
      this.#fit();
      say("Formatted.");
    } catch (error) {
      this.#refuse(error, false);
    }
  }

  async #explain() {
    if (!this.input.value.trim()) return;
    try {
      showTree(await ask("/ui/explain", { ...this.#parameters(), query: this.input.value }));
    } catch (error) {
      this.#refuse(error, false);
    }
  }

  #insert(text) {
    const { selectionStart, selectionEnd } = this.input;
    this.input.setRangeText(text, selectionStart, selectionEnd, "end");
    this.#fit();
    this.input.focus();
  }

  #submit() {
    this.completion.close();
    this.#takeQuery();
    remember(this.state.query, Date.now());
    this.page.changed(true);
    this.run();
  }

  // Another expression has other series: none of them is hidden.
  #takeQuery() {
    if (this.state.query === this.input.value) return;
    Object.assign(this.state, { query: this.input.value, hide: [], only: [] });
    this.#showTitle();
  }

  // A pointer over the list of many series would draw them all at each row.
  #redraw(focus, changed = false) {
    if (this.answer?.view !== "graph" || (!changed && this.answer.series.length > FOCUSED_MAX)) return;
    this.graph.draw(this.answer, this.options(), this.legend.hidden(this.answer), focus).catch((error) => this.#refuse(error));
    if (!changed) return;
    this.legend.show(this.answer, this.options());
    this.page.changed();
  }

  async #copy(choice) {
    const form = choice.value;
    choice.value = "";
    try {
      const { view, unit, axis } = this.state;
      const { text } = await ask("/ui/copy", { as: form, view, unit, axis, ...this.#parameters(), query: this.input.value });
      await copy(text, FORMS[form]);
    } catch (error) {
      this.#refuse(error, false);
    }
  }

  async #save(choice) {
    const form = choice.value;
    choice.value = "";
    try {
      if (form === "png") {
        const picture = await this.graph.picture();
        if (picture === null) throw new Problem({ error: "There is no graph to save.", next: "Run an expression in the view Graph first." });
        save(picture, "graph.png");
        return;
      }
      const { text } = await ask("/ui/save", { as: form, view: this.state.view, ...this.#parameters() });
      save(new Blob([text], { type: TYPES[form] }), `${this.state.view}.${form}`);
    } catch (error) {
      this.#refuse(error, false);
    }
  }

  #fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 480)}px`;
    this.colours.show();
  }

  #notes(answer) {
    const texts = [...answer.warnings, ...answer.infos];
    if (answer.view === "graph" && answer.series_total > answer.series.length) {
      texts.push(`The first ${answer.series.length} of ${answer.series_total.toLocaleString("en")} series are drawn. Group them, or take the largest: topk(20, …).`);
    }
    const below = answer.view === "graph" && this.state.axis === "log" ? notPositive(answer) : 0;
    if (below) texts.push(`A log axis has no place for 0 and less: ${count(below, "value")} ${below === 1 ? "is" : "are"} not drawn.`);
    if (answer.view === "graph" && this.state.axis === "buckets" && answer.series.length && !answer.heatmap && !answer.series.some((labels) => "le" in labels)) {
      texts.push("A heatmap needs the buckets of a histogram: native histograms, or series with the label le: sum by (le) (rate(name_bucket[5m])).");
    }
    if (answer.earlier?.left_out) texts.push(`${count(answer.earlier.left_out, "series", "series")} of ${answer.earlier.before} before ${answer.earlier.left_out === 1 ? "is" : "are"} not drawn: none now has the same labels.`);
    const notes = this.find(".notes");
    notes.replaceChildren(...texts.map((text) => element("p", { class: "notice" }, text)));
    notes.hidden = !texts.length;
  }

  #clear() {
    this.answer = null;
    this.graph.close();
    this.legend.clear();
    this.table.clear();
    this.find(".rows").replaceChildren();
    this.readout.clear();
    for (const one of [this.evidence, this.problem, this.find(".notes")]) one.hidden = true;
  }

  // clears: the error is of the expression that runs, not of a copy of it.
  #refuse(error, clears = true) {
    if (!(error instanceof Problem)) {
      console.error(error);
      error = new Problem({ error: `The page could not show the answer: ${error.message}`, next: "Run it again, or open the page anew." });
    }
    // An answer to another question must not stand below an error. One that was good a moment ago may, while the server
    // is away; the text then names its age.
    const isKept = !clears || error.isAway;
    if (!isKept) this.#clear();
    const age = clears && isKept && this.answer !== null ? [element("p", {}, `The answer below is of ${moment(this.answer.evidence.now_ms)}.`)] : [];
    this.problem.replaceChildren(...problem(error, this.input.value), ...age);
    this.problem.hidden = false;
  }
}

// The number of drawn values that a log axis leaves out.
export function notPositive({ values }) {
  return values.reduce((total, row) => total + row.reduce((sum, number) => sum + (number !== null && number <= 0), 0), 0);
}

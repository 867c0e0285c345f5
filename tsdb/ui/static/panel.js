// Panel: one expression and its answer. A new run ends the one before it; the server then ends its query.
import { ask, Problem } from "./api.js";
import { element, say } from "./dom.js";
import { evidence } from "./evidence.js";
import { count } from "./format.js";
import { Graph } from "./graph.js";
import { Legend } from "./legend.js";

let numbers = 0;

export class Panel {
  // page: range parameters, changes of the link, zoom, removal.
  constructor(page, state) {
    this.page = page;
    this.state = state;
    this.answer = null;
    this.running = null;
    this.root = document.getElementById("panel").content.firstElementChild.cloneNode(true);
    numbers += 1;
    this.number = numbers;
    this.#bind();
  }

  find(selector) {
    return this.root.querySelector(selector);
  }

  get query() {
    return this.input.value;
  }

  // Runs the expression; resolves when it is drawn, refused or overtaken.
  async run() {
    this.running?.abort();
    this.state.query = this.query;
    if (!this.query.trim()) {
      this.#clear();
      return;
    }
    const controller = new AbortController();
    this.running = controller;
    this.root.setAttribute("aria-busy", "true");
    try {
      const asked = { query: this.query, points: String(Math.max(200, this.graphElement.clientWidth)), stack: this.state.stack ? "1" : "0", ...this.page.times() };
      const answer = await ask("/ui/graph", asked, controller.signal);
      if (controller.signal.aborted) return;
      this.answer = answer;
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

  // Draws the last answer again, with the options as they are now.
  async show() {
    if (this.answer === null) return;
    const answer = this.answer;
    this.problem.hidden = true;
    this.#notes(answer);
    this.evidence.replaceChildren(...evidence(answer.evidence));
    this.evidence.hidden = false;
    await this.graph.draw(answer, this.options(), this.legend.hidden);
    this.legend.show(answer, this.options());
  }

  options() {
    return { theme: document.documentElement.dataset.theme, axis: this.state.axis, unit: this.state.unit, stack: this.state.stack };
  }

  #bind() {
    this.input = this.find("textarea");
    this.problem = this.find(".problem");
    this.evidence = this.find(".evidence");
    this.graphElement = this.find(".graph");
    const id = `expression-${this.number}`;
    this.input.id = id;
    this.find(".query label").htmlFor = id;
    this.root.setAttribute("aria-label", `Panel ${this.number}`);
    this.input.value = this.state.query;
    this.find(".unit").value = this.state.unit;
    this.find(".axis").value = this.state.axis;
    this.find(".stack").checked = this.state.stack;
    this.graph = new Graph(this.graphElement, { onZoom: (start, end) => this.page.zoom(start, end), onMove: () => {} });
    this.legend = new Legend(this.find(".rows"), (focus, changed) => this.#redraw(focus, changed));
    this.input.addEventListener("input", () => this.#fit());
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.defaultPrevented) {
        event.preventDefault();
        this.#submit();
      }
    });
    this.find("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    for (const name of ["unit", "axis"]) this.find(`.${name}`).addEventListener("change", (event) => this.#set(name, event.target.value));
    this.find(".stack").addEventListener("change", (event) => {
      this.#set("stack", event.target.checked);
      this.run();
    });
    this.find(".remove").addEventListener("click", () => this.page.remove(this));
  }

  // The page has the panel now, so its texts have sizes.
  attached() {
    this.#fit();
  }

  #set(name, value) {
    this.state[name] = value;
    this.page.changed();
    this.show().catch((error) => this.#refuse(error));
  }

  #submit() {
    this.state.query = this.query;
    this.page.changed(true);
    this.run();
  }

  #redraw(focus, changed = false) {
    if (this.answer === null) return;
    this.graph.draw(this.answer, this.options(), this.legend.hidden, focus).catch((error) => this.#refuse(error));
    if (changed) this.legend.show(this.answer, this.options());
  }

  #fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight + 2, 240)}px`;
  }

  #notes(answer) {
    const texts = [...answer.warnings, ...answer.infos];
    if (answer.series_total > answer.series.length) {
      texts.push(`The first ${answer.series.length} of ${answer.series_total.toLocaleString("en")} series are drawn. Group them, or take the largest: topk(20, …).`);
    }
    const notes = this.find(".notes");
    notes.replaceChildren(...texts.map((text) => element("p", { class: "notice" }, text)));
    notes.hidden = !texts.length;
  }

  #clear() {
    this.answer = null;
    this.graph.close();
    this.evidence.hidden = true;
    this.problem.hidden = true;
    this.find(".rows").replaceChildren();
    this.find(".notes").hidden = true;
  }

  #refuse(error) {
    if (!(error instanceof Problem)) {
      console.error(error);
      error = new Problem({ error: `The page could not show the answer: ${error.message}`, next: "Run it again, or open the page anew." });
    }
    const parts = [element("p", {}, element("strong", {}, error.message))];
    if (error.line !== null) {
      const text = this.query.split("\n")[error.line - 1] ?? "";
      // Columns count bytes of UTF-8.
      const before = new TextDecoder().decode(new TextEncoder().encode(text).slice(0, error.column - 1));
      parts.push(element("pre", {}, `${text}\n${" ".repeat(before.length)}▲`), element("p", {}, `Line ${error.line}, column ${error.column}.`));
    }
    parts.push(element("p", {}, error.next));
    if (error.errorType === "unauthorized") parts.push(element("p", {}, element("a", { href: location.href }, "Sign in")));
    this.problem.replaceChildren(...parts);
    this.problem.hidden = false;
  }
}

// Legend: a table of the drawn series with the statistics of all their values. A click hides a series, with Ctrl it shows
// one alone. A refresh with the same series changes the numbers alone, so that focus and scrolling stay.
import { element, swatch } from "./dom.js";
import { series, value } from "./format.js";
import { look } from "./graph.js";

const ROWS_SHOWN = 60; // More come on demand: building many rows delays the graph.
const COLUMNS = { last: "last", min: "lowest", max: "highest", mean: "mean" };

export class Legend {
  constructor(container, onChange) {
    this.container = container;
    this.onChange = onChange;
    this.hidden = new Set();
    this.all = false;
    this.key = "";
    this.cells = [];
  }

  clear(children) {
    this.key = "";
    this.cells = [];
    this.container.replaceChildren(...children);
  }

  show(answer, options) {
    const total = answer.series.length;
    for (const index of this.hidden) if (index >= total) this.hidden.delete(index);
    if (!total) {
      this.clear([element("p", { class: "quiet" }, "No series in this range. Check the name and the labels, or ask for a longer range.")]);
      return;
    }
    const key = JSON.stringify([answer.series, options, [...this.hidden], this.all]);
    if (key !== this.key) this.#build(answer, options);
    this.key = key;
    this.cells.forEach((row, index) => row.forEach((cell, column) => {
      const text = answer.statistics[index][Object.keys(COLUMNS)[column]];
      cell.textContent = value(text, options.unit);
      cell.title = text;
    }));
  }

  #build(answer, options) {
    const total = answer.series.length;
    const shown = this.all ? total : Math.min(total, ROWS_SHOWN);
    this.cells = [];
    const head = element("tr", {}, element("th", { scope: "col" }, "series"), ...Object.values(COLUMNS).map((name) => element("th", { scope: "col", class: "number" }, name)));
    const rows = [];
    for (let index = 0; index < shown; index += 1) rows.push(this.#row(answer, options, index));
    const table = element("table", { class: "legend" }, element("thead", {}, head), element("tbody", {}, ...rows));
    const parts = [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Series of the graph" }, table)];
    if (shown < total) parts.push(element("button", { type: "button", class: "more", onclick: () => this.#more(answer, options) }, `Show all ${total} series`));
    this.container.replaceChildren(...parts);
  }

  #row(answer, options, index) {
    const isHidden = this.hidden.has(index);
    const button = element(
      "button",
      { type: "button", class: "series", "aria-pressed": String(!isHidden), title: "Show or hide; with Ctrl: this one alone", onclick: (event) => this.#toggle(index, answer.series.length, event.ctrlKey || event.metaKey) },
      swatch(look(index, options.theme)),
      element("span", {}, series(answer.series[index])),
    );
    const cells = Object.keys(COLUMNS).map(() => element("td", { class: "number" }));
    this.cells.push(cells);
    const events = { onmouseenter: () => this.onChange(index), onmouseleave: () => this.onChange(null) };
    return element("tr", { class: isHidden ? "off" : null, ...events }, element("th", { scope: "row" }, button), ...cells);
  }

  #toggle(index, total, alone) {
    if (alone) {
      const isAlone = this.hidden.size === total - 1 && !this.hidden.has(index);
      this.hidden = new Set(isAlone ? [] : [...Array(total).keys()].filter((one) => one !== index));
    } else if (!this.hidden.delete(index)) {
      this.hidden.add(index);
    }
    this.onChange(null, true);
    this.container.querySelectorAll("button.series")[index]?.focus();
  }

  #more(answer, options) {
    this.all = true;
    this.show(answer, options);
  }
}

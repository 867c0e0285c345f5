// Legend: a table of the drawn series with the statistics of all their values. A click hides a series, with Ctrl it shows
// one alone. A refresh with the same series changes the numbers alone, so that focus and scrolling stay.
import { element, swatch } from "./dom.js";
import { series, value } from "./format.js";
import { look } from "./graph.js";

const ROWS_SHOWN = 60; // More come on demand: building many rows delays the graph.
const COLUMNS = { last: "last", min: "lowest", max: "highest", mean: "mean" };

// A series by its labels, which stay the same while its place in the answers changes.
const identity = (labels) => JSON.stringify(labels);

export class Legend {
  // state: of the panel. hide: the series that are hidden; only: where it has any, all but these are hidden.
  constructor(container, state, onChange) {
    this.container = container;
    this.state = state;
    this.onChange = onChange;
    this.all = false;
    this.key = "";
    this.cells = [];
  }

  // The indexes of the series of an answer that are hidden.
  hidden(answer) {
    const { hide, only } = this.state;
    const chosen = new Set(only.length ? only : hide);
    const hidesChosen = !only.length;
    return new Set(answer.series.flatMap((labels, index) => (chosen.has(identity(labels)) === hidesChosen ? [index] : [])));
  }

  clear(children) {
    this.key = "";
    this.cells = [];
    this.container.replaceChildren(...children);
  }

  show(answer, options) {
    const total = answer.series.length;
    if (!total) {
      this.clear([element("p", { class: "quiet" }, "No series in this range. Check the name and the labels, or ask for a longer range.")]);
      return;
    }
    const key = JSON.stringify([answer.series, options, this.state.hide, this.state.only, this.all]);
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
    const hidden = this.hidden(answer);
    for (let index = 0; index < shown; index += 1) rows.push(this.#row(answer, options, index, hidden.has(index)));
    const table = element("table", { class: "legend" }, element("thead", {}, head), element("tbody", {}, ...rows));
    const parts = [element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Series of the graph" }, table)];
    if (shown < total) parts.push(element("button", { type: "button", class: "more", onclick: () => this.#more(answer, options) }, `Show all ${total} series`));
    this.container.replaceChildren(...parts);
  }

  #row(answer, options, index, isHidden) {
    const button = element(
      "button",
      { type: "button", class: "series", "aria-pressed": String(!isHidden), title: "Show or hide; with Ctrl: this one alone", onclick: (event) => this.#toggle(answer.series, index, event.ctrlKey || event.metaKey) },
      swatch(look(index, options.theme)),
      element("span", {}, series(answer.series[index])),
    );
    const cells = Object.keys(COLUMNS).map(() => element("td", { class: "number" }));
    this.cells.push(cells);
    const events = { onmouseenter: () => this.onChange(index), onmouseleave: () => this.onChange(null) };
    return element("tr", { class: isHidden ? "off" : null, ...events }, element("th", { scope: "row" }, button), ...cells);
  }

  #toggle(all, index, alone) {
    const one = identity(all[index]);
    const { hide, only } = this.state;
    if (alone) {
      const isAlone = only.length === 1 && only[0] === one;
      Object.assign(this.state, { hide: [], only: isAlone ? [] : [one] });
    } else if (only.length) {
      this.state.only = toggled(only, one);
    } else {
      this.state.hide = toggled(hide, one);
    }
    this.onChange(null, true);
    this.container.querySelectorAll("button.series")[index]?.focus();
  }

  #more(answer, options) {
    this.all = true;
    this.show(answer, options);
  }
}

function toggled(list, one) {
  return list.includes(one) ? list.filter((other) => other !== one) : [...list, one];
}

// Legend: the table of the drawn series with the statistics of all their values. A click on a row hides its series, with
// Ctrl it shows this one alone.
import { element, swatch } from "./dom.js";
import { compareSeries, numberOf, scaled, scaleOfColumn, series } from "./format.js";
import { look } from "./look.js";
import { Rows } from "./rows.js";

const ROWS_SHOWN = 60;
const COLUMNS = { last: "last", min: "lowest", max: "highest", mean: "mean" };

// A series by its labels, which stay the same while its place in the answers changes.
const identity = (labels) => JSON.stringify(labels);

export class Legend {
  // state: of the panel. hide: the series that are hidden; only: where it has any, all but these are hidden.
  constructor(container, state, onChange) {
    this.container = container;
    this.state = state;
    this.onChange = onChange;
    this.key = "";
    this.rows = null;
  }

  // The indexes of the series of an answer that are hidden.
  hidden(answer) {
    const { hide, only } = this.state;
    const chosen = new Set(only.length ? only : hide);
    const hidesChosen = !only.length;
    return new Set(answer.series.flatMap((labels, index) => (chosen.has(identity(labels)) === hidesChosen ? [index] : [])));
  }

  // The next show builds the table anew: something else stands in the container.
  clear() {
    this.rows = null;
  }

  show(answer, options) {
    if (!answer.series.length) {
      this.clear();
      this.container.replaceChildren(element("p", { class: "quiet" }, "No series in this range. Check the name and the labels, or ask for a longer range."));
      return;
    }
    if (this.rows === null) {
      this.rows = new Rows({ label: "Series of the graph", className: "legend", most: ROWS_SHOWN });
      this.container.replaceChildren(...this.rows.parts);
    }
    const key = JSON.stringify([answer.series, options.theme, options.stack, options.symbols, this.state.hide, this.state.only]);
    if (key !== this.key) this.rows.forget();
    this.key = key;
    const hidden = this.hidden(answer);
    const scales = Object.keys(COLUMNS).map((field) => scaleOfColumn(answer.statistics.map((one) => numberOf(one[field])), options.scale));
    this.rows.show({
      columns: [
        { name: "series", isNumber: false, of: (index) => series(answer.series[index]) },
        ...Object.entries(COLUMNS).map(([field, name]) => ({ name, isNumber: true, of: (index) => numberOf(answer.statistics[index][field]) })),
      ],
      rows: firstOrder(answer.series),
      key: (index) => index,
      text: (index) => series(answer.series[index]),
      make: (index) => this.#row(answer, options, index, hidden.has(index)),
      fill: (row, index) => fill(row, answer.statistics[index], scales),
    });
  }

  #row(answer, options, index, isHidden) {
    const button = element(
      "button",
      { type: "button", class: "series", "aria-pressed": String(!isHidden), title: "Show or hide; with Ctrl: this one alone" },
      swatch(look(index, answer.series.length, options)),
      element("span", {}, series(answer.series[index])),
    );
    const events = {
      onclick: (event) => this.#toggle(answer.series[index], index, event.ctrlKey || event.metaKey),
      onmouseenter: () => this.onChange(index),
      onmouseleave: () => this.onChange(null),
    };
    const cells = Object.keys(COLUMNS).map(() => element("td", { class: "number" }));
    return element("tr", { class: isHidden ? "off" : null, "data-series": String(index), ...events }, element("th", { scope: "row" }, button), ...cells);
  }

  #toggle(labels, index, alone) {
    const one = identity(labels);
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
    this.container.querySelector(`tr[data-series="${index}"] button`)?.focus();
  }
}

function fill(row, statistics, scales) {
  Object.keys(COLUMNS).forEach((field, column) => {
    const cell = row.children[column + 1];
    const text = statistics[field];
    cell.textContent = text === "" ? "" : scaled(numberOf(text), scales[column]);
    cell.title = text;
  });
}

// The order of the answer, which may be that of sort(); buckets of histograms by the number of their bound.
function firstOrder(all) {
  const indexes = all.map((_, index) => index);
  return all.some((labels) => "le" in labels) ? indexes.sort((one, other) => compareSeries(all[one], all[other])) : indexes;
}

function toggled(list, one) {
  return list.includes(one) ? list.filter((other) => other !== one) : [...list, one];
}

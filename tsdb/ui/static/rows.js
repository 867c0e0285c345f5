// Rows: a table that its reader sorts by a column and filters by a text. A refresh with the same rows in the same order
// fills their cells anew, so that focus and scrolling stay.
import { element, say } from "./dom.js";
import { compareTexts, count } from "./format.js";

const FILTERED_MIN = 6; // Fewer rows need no filter.

export class Rows {
  // label: the name for readers of a screen. className: of the table. most: rows that are built before "Show all";
  // building many delays the graph.
  constructor({ label, className = null, most = Infinity }) {
    this.most = most;
    this.all = false;
    this.sorted = null; // The column by which the reader sorts, and the direction: { name, isDown }.
    this.elements = new Map();
    this.order = [];
    this.columns = [];
    this.filter = element("input", { type: "search", class: "filter", placeholder: "filter", "aria-label": `Filter: ${label}`, oninput: () => this.#filtered() });
    this.head = element("tr", {});
    this.body = element("tbody", {});
    this.more = element("button", { type: "button", class: "more", onclick: () => this.#showAll() });
    const table = element("table", { class: className }, element("thead", {}, this.head), this.body);
    this.parts = [this.filter, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table), this.more];
  }

  // columns: { name, isNumber, of(row): what the column is sorted by }. key: of a row. text: of a row, for the filter.
  // make: the element of a row; fill: its cells, at each refresh.
  show({ columns, rows, key, text, make, fill = () => {} }) {
    this.shown = { rows, key, text, make, fill };
    const names = JSON.stringify(columns.map((one) => one.name));
    if (names !== JSON.stringify(this.columns.map((one) => one.name))) {
      if (!columns.some((one) => one.name === this.sorted?.name)) this.sorted = null;
      this.columns = columns;
      this.#buildHead();
    }
    this.columns = columns;
    this.#arrange();
  }

  // Rows are made anew at the next show: they look different now.
  forget() {
    this.elements.clear();
    this.order = [];
  }

  #buildHead() {
    this.head.replaceChildren(
      ...this.columns.map(({ name, isNumber }) =>
        element("th", { scope: "col", class: isNumber ? "number" : null }, element("button", { type: "button", class: "sort", title: `Sort by ${name}`, onclick: () => this.#sort(name) }, name)),
      ),
    );
    this.#markHead();
  }

  #markHead() {
    [...this.head.children].forEach((cell, index) => {
      const isSorted = this.sorted?.name === this.columns[index].name;
      if (isSorted) cell.setAttribute("aria-sort", this.sorted.isDown ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
  }

  // A number is sorted from the largest first, a text from the first letter. The third click has the first order again.
  #sort(name) {
    const first = this.columns.find((one) => one.name === name).isNumber;
    if (this.sorted?.name !== name) this.sorted = { name, isDown: first };
    else this.sorted = this.sorted.isDown === first ? { name, isDown: !first } : null;
    this.#markHead();
    this.#arrange();
  }

  #filtered() {
    this.#arrange();
    say(`${count(this.body.children.length, "row")} shown.`);
  }

  #showAll() {
    this.all = true;
    this.#arrange();
  }

  #arrange() {
    const { rows, key, text, make, fill } = this.shown;
    const found = this.#inOrder(this.#matching(rows, text));
    const most = this.all ? found.length : this.most;
    const shown = found.slice(0, most);
    const order = shown.map(key);
    const kept = new Set(order);
    for (const one of [...this.elements.keys()]) if (!kept.has(one)) this.elements.delete(one);
    const made = shown.map((row, index) => {
      if (!this.elements.has(order[index])) this.elements.set(order[index], make(row));
      const one = this.elements.get(order[index]);
      fill(one, row);
      return one;
    });
    this.filter.hidden = rows.length < FILTERED_MIN;
    this.more.hidden = shown.length === found.length;
    this.more.textContent = `Show all ${found.length.toLocaleString("en")}`;
    if (order.length === this.order.length && order.every((one, index) => one === this.order[index])) return;
    this.order = order;
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    this.body.replaceChildren(...made);
    focused?.focus();
  }

  #matching(rows, text) {
    const wanted = this.filter.value.trim().toLowerCase();
    return wanted && rows.length >= FILTERED_MIN ? rows.filter((row) => text(row).toLowerCase().includes(wanted)) : rows;
  }

  #inOrder(rows) {
    if (this.sorted === null) return rows;
    const { of } = this.columns.find((one) => one.name === this.sorted.name);
    const sign = this.sorted.isDown ? -1 : 1;
    return rows
      .map((row, index) => ({ row, index, by: of(row) }))
      .sort((one, other) => compare(one.by, other.by, sign) || one.index - other.index)
      .map(({ row }) => row);
  }
}

// NaN is last in both directions.
function compare(one, other, sign) {
  if (typeof one === "string") return sign * compareTexts(one, other);
  if (Number.isNaN(one) || Number.isNaN(other)) return Number(Number.isNaN(one)) - Number(Number.isNaN(other));
  return one === other ? 0 : one < other ? -sign : sign;
}

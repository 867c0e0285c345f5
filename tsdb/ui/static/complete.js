// Completion of an expression: a list under the box, by the pattern "combobox" of ARIA. The server finds the items.
import { ask } from "./api.js";
import { element, say } from "./dom.js";
import { visible } from "./format.js";

const WAIT_MS = 80;

export class Completion {
  constructor(input, list) {
    this.input = input;
    this.list = list;
    this.items = [];
    this.prefix = "";
    this.before = ""; // The text to which the items belong.
    this.selected = -1;
    this.timer = 0;
    this.running = null;
    list.id = `${input.id}-completions`;
    input.setAttribute("aria-controls", list.id);
    input.addEventListener("input", () => this.#soon());
    input.addEventListener("keydown", (event) => this.#key(event));
    input.addEventListener("blur", () => this.close());
    list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // The box keeps the focus.
      const index = [...list.children].indexOf(event.target.closest("li"));
      if (index >= 0) this.#take(index);
    });
  }

  get isOpen() {
    return !this.list.hidden;
  }

  close() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.items = [];
    this.selected = -1;
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  #soon() {
    clearTimeout(this.timer);
    if (this.isOpen) this.#narrow();
    this.timer = setTimeout(() => this.#ask(), WAIT_MS);
  }

  async #ask() {
    this.running?.abort();
    const controller = new AbortController();
    this.running = controller;
    const before = this.input.value.slice(0, this.input.selectionStart);
    let found;
    try {
      found = await ask("/ui/complete", { before }, controller.signal);
    } catch {
      // Without completion the box works on; Run shows what is wrong. The request of newer text has ended this one.
      if (!controller.signal.aborted) this.close();
      return;
    }
    if (controller.signal.aborted || document.activeElement !== this.input) return;
    this.items = found.items;
    this.before = before;
    this.prefix = found.prefix;
    this.#narrow();
  }

  // Until the server answers again, the list has only items that fit what is typed by now.
  #narrow() {
    const now = this.input.value.slice(0, this.input.selectionStart);
    if (!now.startsWith(this.before)) {
      this.close();
      return;
    }
    this.prefix += now.slice(this.before.length);
    this.before = now;
    const wanted = this.prefix.toLowerCase();
    this.items = this.items.filter(({ text }) => text.toLowerCase().includes(wanted));
    this.#show();
  }

  #show() {
    if (!this.items.length) {
      this.close();
      return;
    }
    this.list.replaceChildren(
      ...this.items.map(({ text, kind, detail }, index) =>
        element("li", { role: "option", id: `${this.list.id}-${index}`, "aria-selected": "false", title: detail || null }, element("span", {}, visible(text)), element("span", { class: "kind" }, kind)),
      ),
    );
    this.selected = -1;
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.input.removeAttribute("aria-activedescendant");
    say(`${this.items.length} completions; arrow keys choose, Tab takes one.`);
  }

  #select(index) {
    this.list.children[this.selected]?.setAttribute("aria-selected", "false");
    this.selected = (index + this.items.length) % this.items.length;
    const chosen = this.list.children[this.selected];
    chosen.setAttribute("aria-selected", "true");
    chosen.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", chosen.id);
  }

  #take(index) {
    const { insert } = this.items[index];
    const at = this.input.selectionStart;
    this.input.setRangeText(insert, at - this.prefix.length, at, "end");
    this.close();
    this.input.dispatchEvent(new Event("change"));
    if (insert.endsWith("(")) this.#soon();
  }

  #key(event) {
    if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.#ask();
      return;
    }
    if (!this.isOpen) return;
    const action = {
      ArrowDown: () => this.#select(this.selected + 1),
      ArrowUp: () => this.#select(this.selected < 0 ? -1 : this.selected - 1),
      Tab: () => this.#take(Math.max(0, this.selected)),
      Enter: this.selected >= 0 ? () => this.#take(this.selected) : undefined,
      Escape: () => this.close(),
    }[event.key];
    if (action === undefined) {
      if (event.key === "Enter") this.close();
      return;
    }
    event.preventDefault();
    event.stopPropagation();
    action();
  }
}

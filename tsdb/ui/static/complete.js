// Completion of an expression: a list under the box, by the pattern "combobox" of ARIA. The server finds the items.
import { ask } from "./api.js";
import { element, say } from "./dom.js";
import { visible } from "./format.js";

const WAIT_MS = 80;
const HELP_CHARS_MAX = 120;

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
    this.isMore = false;
    this.closers = []; // Brackets that a completion closed and that are not typed yet, the innermost last.
    list.id = `${input.id}-completions`;
    input.setAttribute("aria-controls", list.id);
    input.addEventListener("input", () => this.#soon());
    input.addEventListener("keydown", (event) => this.#key(event));
    input.addEventListener("blur", () => {
      this.closers = [];
      this.close();
    });
    list.addEventListener("mousedown", (event) => {
      event.preventDefault(); // The box keeps the focus.
      const index = [...list.children].indexOf(event.target.closest("li"));
      if (index >= 0 && index < this.items.length) this.#take(index);
    });
  }

  get isOpen() {
    return !this.list.hidden;
  }

  close() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.#hide();
  }

  // Without items the list is hidden; the request for newer text goes on.
  #hide() {
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
    this.isMore = found.more;
    this.before = before;
    this.prefix = found.prefix;
    this.#narrow();
  }

  // Until the server answers again, the list has only items that fit what is typed by now.
  #narrow() {
    const now = this.input.value.slice(0, this.input.selectionStart);
    if (!now.startsWith(this.before)) {
      this.#hide();
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
      this.#hide();
      return;
    }
    this.list.replaceChildren(
      ...this.items.map((item, index) => option(item, `${this.list.id}-${index}`)),
      ...(this.isMore ? [element("li", { role: "presentation", class: "rest" }, "There are more: type a letter more.")] : []),
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
    const { insert, kind } = this.items[index];
    const at = this.input.selectionStart;
    const from = at - this.prefix.length;
    const next = this.input.value[at] ?? "";
    const close = closing(insert, kind, this.input.value[from - 1] ?? "", next);
    this.input.setRangeText(insert + close, from, at, "end");
    this.close();
    if (close === ")") {
      const inside = this.input.selectionStart - 1;
      this.input.setSelectionRange(inside, inside);
      this.closers.push(close);
    }
    this.input.dispatchEvent(new Event("change"));
    if (insert.endsWith("(")) this.#soon();
  }

  // A bracket that is typed where a completion has closed it moves the cursor behind it.
  #isTypedOver(event) {
    const { selectionStart: at, selectionEnd: end, value } = this.input;
    if (at !== end || event.key !== this.closers.at(-1) || value[at] !== event.key) return false;
    this.closers.pop();
    this.input.setSelectionRange(at + 1, at + 1);
    return true;
  }

  #key(event) {
    if (this.#isTypedOver(event)) {
      event.preventDefault();
      this.close();
      return;
    }
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

// A line of the list: the text, the arguments of a function, and what it is.
function option({ text, kind, signature, help }, id) {
  const shown = element("span", {}, visible(text), element("span", { class: "signature" }, signature.slice(text.length)));
  const about = element("span", { class: "kind" }, help ? `${kind} · ${visible(help.slice(0, HELP_CHARS_MAX))}` : kind);
  return element("li", { role: "option", id, "aria-selected": "false" }, shown, about);
}

// What closes an inserted text: the bracket of a function, the quote of a value; "" where it is closed already. before,
// next: the characters around.
export function closing(insert, kind, before, next) {
  if (insert.endsWith("(")) return /[\w({"]/.test(next) ? "" : ")";
  if (kind === "value" && "\"'`".includes(before) && before !== "") return next === before ? "" : before;
  return "";
}

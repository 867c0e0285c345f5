// History: the expressions that were run and those with a star, in the storage of the browser.
import { dialog, element, say } from "./dom.js";
import { count, moment, visible } from "./format.js";

const KEY = "queries";
const KEPT = 100; // Of the expressions without a star, the newest; and at most as many with one.
const CHARS_MAX = 10_000;

// The expressions, the newest first: { query, ms, starred }. What another version or a person wrote is left out.
export function entries(storage = globalThis.localStorage) {
  try {
    const found = JSON.parse(storage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.query === "string" && Number.isFinite(one.ms)) : [];
  } catch {
    return []; // Storage may be off, or have another text.
  }
}

function write(all, storage) {
  const kept = { true: 0, false: 0 };
  const bounded = all.filter((one) => (kept[Boolean(one.starred)] += 1) <= KEPT);
  try {
    storage.setItem(KEY, JSON.stringify(bounded));
  } catch {
    // Without storage there is no history.
  }
}

export function remember(query, ms, storage = globalThis.localStorage) {
  if (!query.trim() || query.length > CHARS_MAX) return;
  const all = entries(storage);
  const starred = all.some((one) => one.query === query && one.starred);
  write([{ query, ms, starred }, ...all.filter((one) => one.query !== query)], storage);
}

export function star(query, starred, storage = globalThis.localStorage) {
  write(entries(storage).map((one) => (one.query === query ? { ...one, starred } : one)), storage);
}

// Removes the expressions without a star.
export function forget(storage = globalThis.localStorage) {
  write(entries(storage).filter((one) => one.starred), storage);
}

// Opens the list. take: gets the expression that was chosen.
export function openHistory(take) {
  const search = element("input", { type: "search", class: "search", placeholder: "part of an expression", "aria-label": "Search the history", autocomplete: "off" });
  const list = element("ul", { class: "history" });
  const total = element("p", { class: "quiet", role: "status" });
  const empty = element("button", { type: "button" }, "Forget those without a star");
  const box = dialog(
    { class: "finder", "aria-label": "History" },
    element("div", { class: "bar" }, search, element("span", { class: "bar-end" }, empty, element("form", { method: "dialog" }, element("button", {}, "Close")))),
    total,
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Expressions" }, list),
  );
  const choose = (query) => {
    box.close();
    take(query);
  };
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = entries().filter((one) => one.query.toLowerCase().includes(wanted));
    const ordered = [...found.filter((one) => one.starred), ...found.filter((one) => !one.starred)];
    total.textContent = `${count(found.length, "expression")}, kept in this browser.`;
    list.replaceChildren(...ordered.map((one) => row(one, choose, show)));
  };
  search.addEventListener("input", show);
  empty.addEventListener("click", () => {
    forget();
    show();
  });
  show();
  search.focus();
}

function row({ query, ms, starred }, choose, show) {
  const toggle = () => {
    star(query, !starred);
    say(starred ? "Star removed." : "Star added.");
    show();
  };
  return element(
    "li",
    {},
    element("button", { type: "button", class: "star", "aria-pressed": String(Boolean(starred)), "aria-label": `Star: ${visible(query)}`, onclick: toggle }, starred ? "★" : "☆"),
    element("button", { type: "button", class: "series", onclick: () => choose(query) }, visible(query)),
    element("span", { class: "quiet time" }, moment(ms - (ms % 1000))),
  );
}

// Pages about the system: refresh of their tables, the end of a query, and growth. The server renders all tables; a
// refresh takes those of the same page anew, so that focus and scrolling of all else stay.
import { ask, Problem } from "./api.js";
import { element, say } from "./dom.js";
import { count, visible } from "./format.js";
import { problem } from "./problem.js";

const content = document.getElementById("content");
const seconds = document.getElementById("refresh");
const alert = document.querySelector("main > .problem");
let timer = 0;

async function refresh() {
  clearTimeout(timer);
  try {
    await load();
    alert.hidden = true;
  } catch (error) {
    show(error);
  }
  schedule();
}

async function load() {
  let got;
  let text;
  try {
    got = await fetch(location.href, { headers: { accept: "text/html" } });
    text = await got.text();
  } catch {
    throw new Problem({ error: "The server does not answer; the tables are from before.", next: "It may be restarting, or the network is down. The page tries again." });
  }
  // A parsed document runs no script and loads nothing.
  const page = new DOMParser().parseFromString(text, "text/html");
  const fresh = page.getElementById("content");
  if (fresh === null) {
    const errorType = got.status === 401 ? "unauthorized" : "";
    throw new Problem({ error: page.querySelector('[role="alert"]')?.textContent ?? `The server answered ${got.status}.`, next: errorType ? "The token is missing or no longer valid." : "The tables are from before.", errorType });
  }
  const places = scrolling();
  content.replaceChildren(...fresh.childNodes);
  content.querySelectorAll(".scroll").forEach((one, index) => one.scrollTo(...(places[index] ?? [0, 0])));
}

function scrolling() {
  return [...content.querySelectorAll(".scroll")].map((one) => [one.scrollLeft, one.scrollTop]);
}

function schedule() {
  clearTimeout(timer);
  const wait = Number(seconds.value);
  // A page that nobody sees costs the server nothing.
  if (wait && !document.hidden) timer = setTimeout(refresh, 1000 * wait);
}

function show(error) {
  alert.replaceChildren(...problem(error, ""));
  alert.hidden = false;
}

async function cancel(button) {
  button.disabled = true;
  try {
    const { found } = await ask("/ui/cancel", { number: button.dataset.number });
    say(found ? "The query ends." : "The query had ended.");
    await refresh();
  } catch (error) {
    show(error);
  }
}

async function grow(form) {
  const grown = document.getElementById("grown");
  grown.setAttribute("aria-busy", "true");
  try {
    grown.replaceChildren(...growth(await ask("/ui/growth", { by: form.dataset.by, ago: document.getElementById("ago").value })));
    alert.hidden = true;
  } catch (error) {
    show(error);
  }
  grown.removeAttribute("aria-busy");
}

function growth({ rows, grown_total: total, ago, unit, now, before }) {
  const sum = `${count(now, unit, unit)} with a value now, ${before.toLocaleString("en")} ${ago} ago`;
  if (!total) return [element("p", { class: "quiet" }, `Nothing has grown: ${sum}.`)];
  const cut = rows.length < total ? `; the first ${rows.length} of ${total} are shown` : "";
  const head = element("tr", {}, ...["name", "before", "now", "more"].map((name, index) => element("th", { scope: "col", class: index ? "number" : null }, name)));
  const body = rows.map((row) => {
    const numbers = [row.before, row.now, row.now - row.before].map((one) => element("td", { class: "number" }, one.toLocaleString("en")));
    return element("tr", {}, element("th", { scope: "row", class: "name" }, visible(row.name.slice(0, 300))), ...numbers);
  });
  return [
    element("p", { class: "quiet caption" }, `${sum}${cut}.`),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Growth" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))),
  ];
}

document.getElementById("now").addEventListener("click", refresh);
seconds.addEventListener("change", schedule);
document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : schedule()));
content.addEventListener("click", (event) => {
  const button = event.target.closest("button.cancel");
  if (button) cancel(button);
});
document.getElementById("growth")?.addEventListener("submit", (event) => {
  event.preventDefault();
  grow(event.target);
});

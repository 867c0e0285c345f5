// Elements. Texts go in as text nodes, never as HTML, so a label cannot become markup.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((one) => one !== null));
  return made;
}

export function say(text) {
  const status = document.getElementById("status");
  status.textContent = text;
}

const FLASH_MS = 3000;

// Says a text and shows it for a moment.
export function flash(text) {
  say(text);
  const toast = element("p", { class: "toast", "aria-hidden": "true" }, text);
  document.body.append(toast);
  setTimeout(() => toast.remove(), FLASH_MS);
}

// Opens a dialog, which is removed when it closes.
export function dialog(attributes, ...children) {
  const box = element("dialog", attributes, ...children);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

const SVG = "http://www.w3.org/2000/svg";

// A short line in the colour, dashes and symbol of a series. marker: null for none.
export function swatch({ color, dash, marker }) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", "34");
  svg.setAttribute("height", "12");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "swatch");
  const line = document.createElementNS(SVG, "line");
  for (const [key, value] of Object.entries({ x1: 1, x2: 33, y1: 6, y2: 6, stroke: color, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") })) {
    line.setAttribute(key, value);
  }
  svg.append(line);
  if (marker === null) return svg;
  const mark = document.createElementNS(SVG, "path");
  mark.setAttribute("d", SHAPES[marker]);
  mark.setAttribute("fill", "none");
  mark.setAttribute("stroke", color);
  mark.setAttribute("stroke-width", "1.5");
  svg.append(mark);
  return svg;
}

const SHAPES = {
  circle: "M13 6a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  square: "M13.5 2.5h7v7h-7z",
  triangle: "M17 2l4.5 8h-9z",
  diamond: "M17 1.5l4.5 4.5l-4.5 4.5l-4.5-4.5z",
  inverted_triangle: "M17 10l4.5-8h-9z",
  hex: "M13 6l2-3.5h4l2 3.5l-2 3.5h-4z",
  cross: "M17 2v8M13 6h8",
  x: "M14 3l6 6M20 3l-6 6",
};

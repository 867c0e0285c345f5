// Copies and files. A copy goes to the clipboard, or in a dialog where the browser gives pages no clipboard (plain HTTP to another host).
import { dialog, element, flash } from "./dom.js";

export async function copy(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    flash(`${name} copied.`);
    return;
  } catch {
    show(text, name);
  }
}

function show(text, name) {
  const area = element("textarea", { readonly: true, rows: "12", "aria-label": name });
  area.value = text;
  dialog({ "aria-label": name }, element("p", {}, `${name}: copy it with Ctrl+C.`), area, element("form", { method: "dialog" }, element("button", {}, "Close")));
  area.select();
}

// Saves a blob as a file of the browser.
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  flash(`${name} saved.`);
}

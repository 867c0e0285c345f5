// Copies: to the clipboard, or in a dialog where the browser gives pages no clipboard (plain HTTP to another host).
import { element, say } from "./dom.js";

export async function copy(text, name) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${name} copied.`);
    return;
  } catch {
    show(text, name);
  }
}

function show(text, name) {
  const area = element("textarea", { readonly: true, rows: "12", "aria-label": name });
  area.value = text;
  const dialog = element("dialog", { "aria-label": name }, element("p", {}, `${name}: copy it with Ctrl+C.`), area, element("form", { method: "dialog" }, element("button", {}, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  area.select();
}

// Theme: light or dark, as the system has it or as the reader chose. Runs before the page is drawn.
"use strict";
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem("theme");
    } catch {
      return null; // Storage may be off.
    }
  }

  function show(theme) {
    if (root.dataset.theme === theme) return;
    root.dataset.theme = theme;
    document.dispatchEvent(new CustomEvent("theme", { detail: theme }));
  }

  show(chosen() ?? (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => show(chosen() ?? (system.matches ? "dark" : "light")));
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme")?.addEventListener("click", () => {
      const next = root.dataset.theme === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("theme", next);
      } catch {
        // Without storage the choice holds for this page alone.
      }
      show(next);
    });
    document.getElementById("sign-out")?.addEventListener("click", async () => {
      await fetch("/ui/sign-out", { method: "POST" });
      location.reload();
    });
  });
})();

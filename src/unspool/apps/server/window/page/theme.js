// Light or dark: as the system has it, until one chooses.
const KEPT = "unspool-theme";

export function themed(button) {
  const root = document.documentElement, system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  try {
    const chosen = localStorage.getItem(KEPT);
    if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  } catch { /* a file may not remember */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem(KEPT, root.dataset.theme); } catch { /* as above */ }
    show();
  });
  system.addEventListener("change", show);
  show();
}

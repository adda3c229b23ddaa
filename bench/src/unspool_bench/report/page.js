"use strict";
// Sorting, CSV files and the choice of light or dark; the page can be read without any of it.
(() => {
  const root = document.documentElement, theme = document.getElementById("theme"), said = document.getElementById("said");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = () => { try { return localStorage.getItem("unspool-theme"); } catch { return null; } };
  const keep = (choice) => { try { localStorage.setItem("unspool-theme", choice); } catch { /* a file may not */ } };
  const dark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const show = () => { theme.setAttribute("aria-pressed", String(dark())); };
  const chosen = kept();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    keep(root.dataset.theme);
    show();
  });
  system.addEventListener("change", show);
  show();

  const value = (cell) => {
    const told = cell.dataset.value;
    if (told === undefined) return null;
    return cell.classList.contains("number") ? Number(told === "inf" ? Infinity : told) : told;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        // Figures are mostly wanted from the largest on, names from A.
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const order = head.getAttribute("aria-sort") === first ? other : first;
        for (const each of heads) if (each.hasAttribute("aria-sort")) each.setAttribute("aria-sort", "none");
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        const rows = [...body.rows].map((row) => [value(row.cells[column]), row]);
        rows.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b)));
        body.append(...rows.map(([, row]) => row));
        said.textContent = `${table.caption.textContent}: sorted by ${button.textContent}, ${order}`;
      });
    });
  }

  const sheets = JSON.parse(document.getElementById("sheets").textContent);
  for (const button of document.querySelectorAll("button[data-csv]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.csv;
      const address = URL.createObjectURL(new Blob([sheets[name]], { type: "text/csv;charset=utf-8" }));
      const link = Object.assign(document.createElement("a"), { href: address, download: `${name}.csv` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(address), 1000);
      said.textContent = `${name}.csv saved`;
    });
  }
  root.classList.add("live");
  const contents = document.querySelector("nav details");
  if (matchMedia("(max-width: 900px)").matches) contents.open = false;
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
})();

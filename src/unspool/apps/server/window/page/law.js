// The law of one token: the most probable ones in its place, by the model alone and after all that shapes it.
import { make, percent, spelt } from "./make.js";
import { cellSaid } from "./cells.js";

export class LawView {
  constructor() {
    this.head = make("p", { class: "of" });
    this.list = make("ol", { class: "law" });
    this.box = make("section", { class: "panel", "aria-label": "Law" }, make("h3", {}, "Law of the token"), this.head, this.list);
    this.key = "";
  }

  show(cell) {
    const key = JSON.stringify([cell?.id, cell?.number, cell?.top]);
    if (cell && key === this.key) return;
    this.key = key;
    this.head.textContent = cell ? cellSaid(cell) : "Point at a token, or choose one with the arrow keys.";
    const shaped = (cell?.top ?? []).some(([, , after]) => after > 0 && after < 0.9999);
    const rows = (cell?.top ?? []).map(([name, p, after, chosen]) => {
      const bar = make("span", { class: "bar", "aria-hidden": "true" }, make("span", { class: "fill" }));
      bar.firstChild.style.width = `${100 * p}%`;
      const said = shaped ? `${percent(p)} → ${percent(after)}` : percent(p);
      return make("li", { class: chosen ? "chosen" : after > 0 || !shaped ? "" : "barred" },
        make("span", { class: "name" }, spelt(name)), bar, make("span", { class: "number" }, said));
    });
    if (cell && !rows.length) this.head.textContent += cell.hole ? "" : ". Its law is told when it is final.";
    this.list.classList.toggle("shaped", shaped);
    this.list.replaceChildren(...rows);
  }
}

export function lawSaid(cell) {
  const best = (cell.top ?? []).slice(0, 3).map(([name, p]) => `${spelt(name)} ${percent(p)}`);
  return best.length ? `${cellSaid(cell)}. Most probable: ${best.join(", ")}.` : cellSaid(cell);
}

// The text, token by token, coloured by where each came from; one is chosen by pointing or with the arrow keys.
import { make, spelt } from "./make.js";

export const ORIGINS = {
  drafted: "drafted, and stood",
  added: "added by the target",
  forced: "forced by the form of the answer",
  unmasked: "filled in on a canvas",
};

export function cellSaid(cell) {
  if (!cell || cell.hole) return "a hole";
  const instead = cell.instead === undefined ? "" : ` in place of “${spelt(cell.instead)}”`;
  const where = cell.origin === "unmasked" ? `filled in look ${cell.look}` : `${ORIGINS[cell.origin]}${instead}, round ${cell.round}`;
  return `“${spelt(cell.name, 40)}”, ${where}`;
}

export class Cells {
  constructor(name, choose) {
    this.name = name;
    this.choose = choose; // is told (cell, by the keyboard?), null for none in particular
    this.shown = [];
    this.active = -1;
    this.box = make("div", { class: "cells", role: "listbox", tabindex: 0, "aria-label": `Tokens of ${name}`, "aria-orientation": "horizontal" });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointerover", (event) => this.point(event.target));
    this.box.addEventListener("pointerleave", () => this.choose(this.shown[this.active]?.cell ?? null, false));
    this.box.addEventListener("click", (event) => this.activate(this.indexOf(event.target), false));
    this.box.addEventListener("blur", () => this.activate(-1, false));
  }

  // Only what has changed is made anew: a text may have a thousand tokens, and comes many times a second.
  show(moment) {
    moment.cells.forEach((cell, index) => {
      const key = JSON.stringify([cell.text, cell.name, cell.origin, cell.look, cell.fresh, cell.hole, cell.settled, moment.looks]);
      const old = this.shown[index];
      if (old && old.key === key) { old.cell = cell; return; }
      const element = this.made(cell, moment, index);
      if (old) old.element.replaceWith(element);
      else this.box.append(element);
      this.shown[index] = { key, cell, element };
    });
    for (const gone of this.shown.splice(moment.cells.length)) gone.element.remove();
    this.box.classList.toggle("empty", moment.cells.length === 0);
    if (this.active >= 0) this.activate(this.active < this.shown.length ? this.active : -1, false);
    this.follow(moment);
  }

  // A long text is kept where it changes, without moving the page.
  follow(moment) {
    const last = moment.cells.findLastIndex((cell) => cell.fresh), { box } = this;
    if (last < 0 || last === this.followed || box.scrollHeight <= box.clientHeight) return;
    this.followed = last;
    box.scrollTop = this.shown[last].element.offsetTop - box.clientHeight / 2;
  }

  made(cell, moment, index) {
    const about = { id: `${this.box.id}-${index}`, role: "option", "aria-selected": "false", class: "cell hole", "aria-label": "a hole" };
    if (cell.hole) return make("span", about, "\u2007");
    const silent = cell.text === "" || (cell.origin === "unmasked" && /^<\|.*\|>$/.test(cell.name));
    about["aria-label"] = cellSaid(cell);
    about.class = ["cell", cell.origin, cell.fresh && "fresh", silent && "silent", cell.origin === "unmasked" && !cell.settled && "open"].filter(Boolean).join(" ");
    const made = make("span", about, ...(silent ? [spelt(cell.name)] : broken(cell.text)));
    if (cell.origin === "unmasked") made.style.setProperty("--age", String(moment.looks > 1 ? (cell.look - 1) / (moment.looks - 1) : 0));
    return made;
  }

  indexOf(target) {
    const element = target.closest?.("[role=option]");
    return this.shown.findIndex((each) => each.element === element);
  }

  point(target) {
    const index = this.indexOf(target);
    if (index >= 0) this.choose(this.shown[index].cell, false);
  }

  key(event) {
    const moves = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1, Home: -Infinity, End: Infinity };
    const move = moves[event.key];
    if (event.key === "Escape") this.activate(-1, true);
    if (move === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const from = this.active < 0 ? (move > 0 ? -1 : this.shown.length) : this.active;
    this.activate(Math.max(0, Math.min(this.shown.length - 1, from + move)), true);
  }

  activate(index, keyed) {
    this.active = index;
    this.mark();
    this.choose(this.shown[index]?.cell ?? null, keyed);
    if (keyed && index >= 0) this.shown[index].element.scrollIntoView({ block: "nearest" });
  }

  mark() {
    this.shown.forEach(({ element }, index) => {
      const chosen = String(index === this.active);
      if (element.getAttribute("aria-selected") !== chosen) element.setAttribute("aria-selected", chosen);
    });
    if (this.active >= 0) this.box.setAttribute("aria-activedescendant", this.shown[this.active].element.id);
    else this.box.removeAttribute("aria-activedescendant");
  }
}

// Ends of lines are seen, and end the line.
function broken(text) {
  return text.split(/(\n)/).flatMap((part) => (part === "\n" ? [make("span", { class: "end", "aria-hidden": "true" }, "↵"), "\n"] : part === "" ? [] : [part]));
}

export function legend(stories) {
  const used = new Set(stories.flatMap((story) => story.rounds.flatMap((round) => round.tokens.map((token) => token.origin))));
  const looks = stories.some((story) => story.rounds.some((round) => round.canvas));
  const shown = ["drafted", "added", "forced"].filter((origin) => used.has(origin) || (!looks && origin !== "forced"));
  const items = shown.map((origin) => make("li", {}, make("span", { class: `cell ${origin}`, "aria-hidden": "true" }, "Aa"), ` ${ORIGINS[origin]}`));
  if (looks) items.push(make("li", {}, make("span", { class: "ramp", "aria-hidden": "true" }), " filled in on a canvas, from the first look to the last"));
  items.push(make("li", {}, make("span", { class: "cell fresh", "aria-hidden": "true" }, "Aa"), " full colour: new in this round"));
  return make("ul", { class: "legend", "aria-label": "Colours" }, ...items);
}

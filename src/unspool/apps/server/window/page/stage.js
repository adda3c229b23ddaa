// The stage: the panes beside each other, their legend, and the scrubber that moves them all.
import { make } from "./make.js";
import { compared } from "./story.js";
import { legend } from "./cells.js";
import { Pane } from "./pane.js";
import { Scrubber } from "./scrubber.js";

const LETTERS = ["A", "B"];

export class Stage {
  constructor(box, stories, say) {
    this.stories = stories;
    this.panes = stories.map((story, index) => new Pane(LETTERS[index], story, say));
    this.scrubber = new Scrubber(stories, (counts) => this.panes.forEach((pane, index) => pane.show(counts[index])));
    this.legend = make("div", {});
    this.verdict = make("p", { class: "verdict" });
    this.note = make("p", { class: "faint" });
    if (stories.length > 1 && stories[0].asked.together) this.note.textContent = "Both were decoded at once and shared their forwards, so their times hold each other's.";
    this.note.hidden = this.note.textContent === "";
    const keys = make("p", { class: "faint keys" }, "Arrow keys move through the rounds and space plays them; inside a text, arrow keys go from token to token.");
    box.replaceChildren(make("div", { class: "above" }, this.legend, this.verdict), make("div", { class: `panes of-${stories.length}` }, ...this.panes.map((pane) => pane.box)), this.note, keys, this.scrubber.box);
    box.hidden = false;
    this.due = false;
    this.refresh();
  }

  // What was told is drawn at most once a frame.
  changed() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => { this.due = false; this.refresh(); });
  }

  refresh() {
    const made = legend(this.stories);
    if (made.textContent !== this.legend.textContent) this.legend.replaceChildren(made);
    this.verdict.textContent = compared(this.stories);
    this.scrubber.grown();
  }

  close() {
    this.scrubber.close();
  }
}

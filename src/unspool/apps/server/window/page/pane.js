// A pane: one text by one method, at one moment.
import { counted, make, seconds } from "./make.js";
import { momentOf, over, total } from "./story.js";
import { Cells } from "./cells.js";
import { LawView, lawSaid } from "./law.js";
import { Meter } from "./meter.js";
import { TreeView } from "./tree.js";

const REASONS = {
  eos: "the model ended it", token: "a stop token came", rows: "its budget was spent", string: "a stop string came", length: "it is as long as it may be", time: "its time was up",
};

export class Pane {
  constructor(letter, story, say) {
    this.story = story;
    this.meter = new Meter();
    this.law = new LawView();
    this.tree = new TreeView();
    this.cells = new Cells(`${letter}, ${story.asked.method}`, (cell, keyed) => this.chosen(cell, keyed));
    this.cells.box.id = `cells-${letter.toLowerCase()}`;
    this.say = say;
    this.status = make("p", { class: "status" });
    const heading = make("h2", { id: `pane-${letter.toLowerCase()}` }, make("span", { class: `letter ${letter.toLowerCase()}` }, letter), make("code", {}, story.asked.method));
    const claim = story.asked.claim ? make("span", { class: "claim" }, story.asked.claim) : null;
    this.panels = make("div", { class: "panels" }, this.tree.box, this.law.box);
    this.box = make("article", { class: "pane", "aria-labelledby": heading.id }, make("div", { class: "title" }, heading, claim, make("span", { class: "promise" }, story.asked.promise ?? "")), this.meter.box, this.cells.box, this.status, this.panels);
    this.pointed = null;
    this.moment = null;
  }

  show(count) {
    this.moment = momentOf(this.story, Math.min(count, this.story.rounds.length));
    this.meter.show(this.moment);
    this.cells.show(this.moment);
    this.tree.show(this.moment);
    this.tree.box.hidden = this.moment.canvas;
    this.lit();
    this.status.textContent = this.said();
    this.status.classList.toggle("wrong", Boolean(this.story.error));
  }

  chosen(cell, keyed) {
    this.pointed = cell;
    this.lit();
    if (cell && keyed) this.say(lawSaid(cell));
  }

  // The law of what is pointed at, else of the newest token.
  lit() {
    const known = (this.moment?.cells ?? []).filter((cell) => cell.number);
    this.law.show(this.pointed ?? known[known.length - 1] ?? null);
  }

  said() {
    const { story } = this;
    if (story.error) return story.error;
    if (!story.about && !over(story)) return "Waiting for its turn …";
    if (!over(story)) {
      const spent = story.working;
      return spent && !story.rounds.length ? `Nothing is certain yet: ${counted(spent.forwards.target ?? 0, "forward")} in ${seconds(total(spent.seconds))} …` : "Decoding …";
    }
    const rounds = counted(story.rounds.length, "round");
    return story.stopped ? `Stopped after ${rounds}.` : `Finished in ${rounds}: ${REASONS[story.ended.reason] ?? story.ended.reason}.`;
  }
}

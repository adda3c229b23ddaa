// The scrubber: which moment is shown. It follows what is being written until somebody moves it.
import { make, seconds } from "./make.js";
import { roundsBy, total } from "./story.js";

const PACE = 220; // milliseconds of a round, when played by rounds
const LONGEST = 1500; // that one waits for the next, when played by time

export class Scrubber {
  constructor(stories, show) {
    this.stories = stories;
    this.show = show; // is told how many rounds of each story
    this.at = 0;
    this.follows = true;
    this.timer = null;
    this.slider = make("input", { type: "range", min: 0, max: 0, step: 1, value: 0, id: "scrub", "aria-label": "Moment" });
    this.play = make("button", { type: "button", class: "play" }, "Play");
    this.back = make("button", { type: "button", "aria-label": "One round back", title: "One round back (←)" }, "‹");
    this.on = make("button", { type: "button", "aria-label": "One round on", title: "One round on (→)" }, "›");
    this.where = make("output", { for: "scrub", class: "where" });
    this.clock = make("input", { type: "checkbox", id: "clock" });
    this.box = make("div", { class: "dock", role: "group", "aria-label": "Moments of the decoding" },
      this.back, this.play, this.on, this.slider, this.where, make("label", { class: "tick", for: "clock" }, this.clock, " by time"));
    this.slider.addEventListener("input", () => this.move(Number(this.slider.value)));
    this.play.addEventListener("click", () => this.toggle());
    this.back.addEventListener("click", () => this.move(this.at - 1));
    this.on.addEventListener("click", () => this.move(this.at + 1));
    this.clock.addEventListener("change", () => this.measured());
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
  }

  // The moments there are: after each round, or each time at which some text went on.
  get moments() {
    const times = this.stories.flatMap((story) => story.rounds.map((round) => total(round.seconds)));
    if (this.clock.checked) return [0, ...[...new Set(times)].sort((one, other) => one - other)];
    return Array.from({ length: Math.max(0, ...this.stories.map((story) => story.rounds.length)) + 1 }, (_, index) => index);
  }

  // More has come.
  grown() {
    const last = this.moments.length - 1;
    this.slider.max = String(last);
    if (this.follows) this.at = last;
    this.render();
  }

  measured() {
    const counts = this.counts();
    this.follows = false;
    const last = this.moments.length - 1;
    this.slider.max = String(last);
    if (this.clock.checked) {
      const times = this.stories.map((story, index) => (counts[index] ? total(story.rounds[counts[index] - 1].seconds) : 0));
      this.at = Math.max(0, this.moments.findLastIndex((time) => time <= Math.max(...times)));
    } else this.at = Math.max(...counts);
    this.render();
  }

  counts() {
    return this.shown ?? this.stories.map((story) => story.rounds.length);
  }

  move(at) {
    this.halt();
    this.go(at);
  }

  go(at) {
    const last = this.moments.length - 1;
    this.at = Math.max(0, Math.min(last, at));
    this.follows = this.at === last;
    this.render();
  }

  render() {
    const { moments } = this, last = moments.length - 1, moment = moments[this.at] ?? 0;
    this.shown = this.stories.map((story) => (this.clock.checked ? roundsBy(story, moment) : Math.min(moment, story.rounds.length)));
    this.slider.value = String(this.at);
    const said = this.clock.checked ? `${seconds(moment)} of ${seconds(moments[last])}` : `round ${moment} of ${last}`;
    this.where.textContent = said;
    this.slider.setAttribute("aria-valuetext", said);
    this.back.disabled = this.at === 0;
    this.on.disabled = this.at >= last;
    this.play.disabled = last < 1;
    this.show(this.shown);
  }

  toggle() {
    if (this.timer !== null) { this.halt(); return; }
    if (this.at >= this.moments.length - 1) this.go(0);
    this.play.textContent = "Pause";
    this.tick();
  }

  tick() {
    const { moments } = this;
    if (this.at >= moments.length - 1) { this.halt(); return; }
    const wait = this.clock.checked ? Math.min(LONGEST, 1000 * (moments[this.at + 1] - moments[this.at])) : PACE;
    this.timer = setTimeout(() => { this.go(this.at + 1); this.tick(); }, wait);
  }

  halt() {
    clearTimeout(this.timer);
    this.timer = null;
    this.play.textContent = "Play";
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
    if (event.target.closest("input, textarea, select, button, summary, a, [role=listbox], .scroll")) return;
    const moves = { ArrowLeft: () => this.move(this.at - 1), ArrowRight: () => this.move(this.at + 1), Home: () => this.move(0), End: () => this.move(Infinity), " ": () => this.toggle() };
    if (!moves[event.key]) return;
    event.preventDefault();
    moves[event.key]();
  }

  close() {
    this.halt();
    document.removeEventListener("keydown", this.keys);
  }
}

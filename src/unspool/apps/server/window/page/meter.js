// The figures of a text so far: tokens per forward, how much of the draft stood, and where the time went.
import { make, percent, seconds } from "./make.js";
import { total } from "./story.js";

const PARTS = { draft: "draft", forward: "forward", rule: "rule", other: "other" };

export class Meter {
  constructor() {
    this.values = {};
    const figures = [["tokens", "tokens"], ["forwards", "forwards"], ["pace", "tokens per forward"], ["stood", "of the draft stood"]].map(([key, words]) => {
      this.values[key] = make("dd", {}, "0");
      return make("div", { class: key === "pace" ? "figure first" : "figure" }, make("dt", {}, words), this.values[key]);
    });
    this.parts = Object.keys(PARTS).map((part) => make("span", { class: `part ${part}` }));
    this.bar = make("div", { class: "split", "aria-hidden": "true" }, ...this.parts);
    this.shares = Object.keys(PARTS).map((part) => make("span", {}));
    const key = Object.entries(PARTS).map(([part, words], index) => make("li", {}, make("span", { class: `dot ${part}`, "aria-hidden": "true" }), `${words} `, this.shares[index]));
    this.time = make("span", { class: "time" });
    this.box = make("div", { class: "meter" }, make("dl", { class: "figures" }, ...figures), this.bar, make("ul", { class: "key", "aria-label": "Where the time went" }, ...key, make("li", { class: "sum" }, this.time)));
  }

  show(moment) {
    const forwards = moment.forwards.target ?? 0, drafting = Object.entries(moment.forwards).filter(([name]) => name !== "target");
    const others = drafting.reduce((sum, [, count]) => sum + count, 0);
    this.values.tokens.textContent = String(moment.tokens);
    this.values.forwards.textContent = others ? `${forwards} + ${others}` : String(forwards);
    this.values.forwards.title = others ? `${forwards} of the target, ${others} of draft models` : "";
    this.values.pace.textContent = forwards ? (moment.tokens / forwards).toFixed(2) : "–";
    this.values.stood.textContent = moment.drafted ? percent(moment.accepted / moment.drafted) : "–";
    const sum = total(moment.seconds);
    Object.keys(PARTS).forEach((part, index) => {
      const share = sum ? moment.seconds[part] / sum : 0;
      this.parts[index].style.width = `${100 * share}%`;
      this.shares[index].textContent = sum ? `${Math.round(100 * share)} %` : "–";
    });
    this.time.textContent = sum ? seconds(sum) : "";
  }
}

// The picker: one method among all that the server knows, with its options.
import { make } from "./make.js";

const FAMILIES = {
  decode: "Whole loops", draft: "Drafting and checking", verify: "Other checks", unmask: "Filling holes", constrain: "Keeping to a form", search: "Searching",
};

export class Picker {
  constructor(box, letter, about, preferred) {
    this.known = new Map(about.methods.map((each) => [each.spec, each]));
    const name = letter.toLowerCase();
    this.select = make("select", { id: `method-${name}`, "aria-label": `Method ${letter}`, "aria-describedby": `about-${name}` });
    if (letter === "B") this.select.append(make("option", { value: "" }, "nothing"));
    const families = [...new Set(about.methods.map((each) => each.family))].sort((one, other) => rank(one) - rank(other));
    for (const family of families) {
      const own = about.methods.filter((each) => each.family === family);
      // What cannot run here comes last and says why when it is chosen among the others on the command line.
      own.sort((one, other) => Boolean(one.missing) - Boolean(other.missing));
      this.select.append(make("optgroup", { label: FAMILIES[family] ?? family }, ...own.map((each) =>
        make("option", { value: each.spec, disabled: Boolean(each.missing), title: each.missing || each.summary }, each.missing ? `${each.spec}: ${brief(each.missing)}` : each.spec))));
    }
    this.options = make("input", { id: `options-${name}`, spellcheck: "false", "aria-label": `Options of method ${letter}`, class: "code" });
    this.claim = make("span", { class: "claim" });
    this.summary = make("span", {});
    this.note = make("p", { class: "faint about", id: `about-${name}` }, this.claim, " ", this.summary);
    box.replaceChildren(box.querySelector("legend"), make("div", { class: "choice" }, this.select, about.options ? this.options : null), this.note);
    const wanted = preferred.find((spec) => this.known.get(spec)?.missing === "");
    this.select.value = wanted ?? (letter === "B" ? "" : about.method);
    this.select.addEventListener("change", () => this.show());
    this.show();
  }

  get chosen() {
    return this.known.get(this.select.value) ?? null;
  }

  // The method as the server wants it named: null for none.
  get spec() {
    const given = this.options.isConnected ? this.options.value.replaceAll(/\s/g, "") : "";
    return this.chosen && (given ? `${this.chosen.spec}${this.chosen.spec.includes(":") ? "," : ":"}${given}` : this.chosen.spec);
  }

  show() {
    const { chosen } = this;
    this.options.value = "";
    this.options.placeholder = chosen?.options ?? "";
    this.options.title = chosen ? [...Object.entries(chosen.ranges).map((each) => each.join(": ")), ...chosen.together].join("\n") : "";
    this.options.hidden = !chosen?.options;
    this.claim.textContent = chosen ? chosen.claim : "";
    this.claim.title = chosen ? chosen.promise : "";
    this.summary.replaceChildren(...worded(chosen ? chosen.summary : "Choose a second method to see both at the same time."));
  }
}

// A sentence with names in backticks.
function worded(sentence) {
  return sentence.split("`").map((words, index) => (index % 2 ? make("code", {}, words) : words));
}

function rank(family) {
  const at = Object.keys(FAMILIES).indexOf(family);
  return at < 0 ? Infinity : at;
}

function brief(why) {
  return why.split(";")[0].slice(0, 60);
}

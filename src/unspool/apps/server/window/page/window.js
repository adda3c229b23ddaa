// The page: a form that asks, and a stage that shows what comes.
import { begun, compared, over, textOf, told } from "./story.js";
import { answerTo, newsOf } from "./stream.js";
import { counted } from "./make.js";
import { bodyOf, formatOf, formOf, settingsSaid } from "./request.js";
import { handOver, savedPage } from "./save.js";
import { Picker } from "./picker.js";
import { Stage } from "./stage.js";
import { themed } from "./theme.js";

const KEY = "unspool-key";
const part = (id) => document.getElementById(id);
const say = (words) => { part("said").textContent = words; };
let pickers = [], stage = null, running = null;

function complain(words) {
  part("wrong").textContent = words;
  part("wrong").hidden = words === "";
}

function key() {
  return part("key").value.trim();
}

async function arrive() {
  try {
    const about = await (await answerTo("/window/methods", key())).json();
    part("model").textContent = about.model;
    part("tokens").max = String(about.tokens);
    part("tokens").value = String(Math.min(64, about.tokens));
    if (!about.chat) { part("manner").value = "text"; part("manner").options[0].disabled = true; }
    pickers = [new Picker(part("first"), "A", about, ["plain"]), new Picker(part("second"), "B", about, ["confident", "merge", "lookup"].filter((spec) => spec !== about.method))];
    part("run").disabled = false;
    try { sessionStorage.setItem(KEY, key()); } catch { /* then only this page knows it */ }
    complain("");
    return true;
  } catch (error) {
    refused(error);
    return false;
  }
}

function refused(error) {
  if (error.name === "AbortError") return;
  if (error.status === 401) {
    part("key-field").hidden = false;
    part("key").focus();
  }
  const unreached = error instanceof TypeError;
  complain(error.status === 401 && key() === "" ? "This server asks for an API key." : unreached ? "The server cannot be reached." : sentence(error.message));
}

function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function given() {
  const kind = part("format").value;
  return {
    prompt: part("prompt").value, chat: part("manner").value === "chat", tokens: Number(part("tokens").value),
    temperature: Number(part("temperature").value), seed: Number(part("seed").value), format: formatOf(kind, part("form").value),
  };
}

async function decode() {
  const asked = given(), together = !part("turns").checked, settings = settingsSaid(asked);
  const chosen = pickers.filter((picker) => picker.spec !== null);
  const stories = chosen.map((picker) => begun({ prompt: asked.prompt, settings, method: picker.spec, claim: picker.chosen.claim, promise: picker.chosen.promise, together }));
  stage?.close();
  stage = new Stage(part("stage"), stories, say);
  // On a phone it would begin where nobody sees it.
  if (part("stage").getBoundingClientRect().top > 0.7 * innerHeight) part("stage").scrollIntoView({ block: "start" });
  running = new AbortController();
  busy(true);
  say(`Decoding with ${stories.map((story) => story.asked.method).join(" and ")}.`);
  const run = (story) => follow(story, bodyOf(asked, story.asked.method), running.signal);
  if (together) await Promise.all(stories.map(run));
  else for (const story of stories) await run(story);
  busy(false);
  part("save").disabled = !stories.some((story) => story.rounds.length);
  say([...stories.map(summary), compared(stories)].join(" "));
}

async function follow(story, body, signal) {
  try {
    if (!signal.aborted) for await (const news of newsOf(await answerTo("/window/decode", key(), body, signal))) {
      told(story, news);
      stage.changed();
    }
    if (!over(story)) { if (signal.aborted) story.stopped = true; else story.error = "The server broke off."; }
  } catch (error) {
    if (signal.aborted) story.stopped = true;
    else {
      story.error = error instanceof TypeError ? "The server cannot be reached any more." : sentence(error.message);
      refused(error);
    }
  }
  stage.changed();
}

function summary(story) {
  const tokens = story.rounds.reduce((sum, round) => sum + round.tokens.length, 0);
  if (story.error) return `${story.asked.method}: ${story.error}`;
  return `${story.asked.method}: ${counted(tokens, "token")} in ${counted(story.rounds.length, "round")}. ${textOf(story).slice(0, 300)}`;
}

function busy(is) {
  part("run").disabled = is;
  part("stop").disabled = !is;
  part("save").disabled = is || !stage;
  part("stage").setAttribute("aria-busy", String(is));
}

part("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  complain("");
  try {
    if (pickers.length || (await arrive())) await decode();
  } catch (error) {
    complain(sentence(error.message));
  }
});
part("stop").addEventListener("click", () => running?.abort());
part("save").addEventListener("click", async () => {
  try {
    say(`${handOver(await savedPage(stage.stories), stage.stories)} saved`);
  } catch (error) {
    complain(`It could not be saved: ${error.message}`);
  }
});
part("format").addEventListener("change", () => {
  const [name, example] = formOf(part("format").value);
  part("form-field").hidden = name === "";
  part("form").required = name !== "";
  part("form-label").textContent = name;
  part("form").value = example;
});
part("key").addEventListener("change", arrive);
addEventListener("pagehide", () => running?.abort());
try { part("key").value = sessionStorage.getItem(KEY) ?? ""; } catch { /* as above */ }
themed(part("theme"));
part("run").disabled = true;
if (!(await arrive())) part("run").disabled = false;

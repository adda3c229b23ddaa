// A saved trace: the stage alone, with what the file holds.
import { Stage } from "./stage.js";
import { themed } from "./theme.js";

const part = (id) => document.getElementById(id);
themed(part("theme"));
const { stories } = JSON.parse(part("trace").textContent);
const { asked, about } = stories[0];
part("model").textContent = about.model;
part("prompt").textContent = asked.prompt;
part("settings").textContent = asked.settings;
document.title = `unspool: ${stories.map((story) => story.asked.method).join(", ")}`;
new Stage(part("stage"), stories, (words) => { part("said").textContent = words; });

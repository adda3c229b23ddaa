// Saving: the stories inside a page of their own, which needs no server.
import { over } from "./story.js";

// Inside a script element nothing may look like the end of it; the rest is for old readers of JSON.
export function inlined(data) {
  const unsafe = { "<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029" };
  return JSON.stringify(data).replace(/[<>&\u2028\u2029]/g, (letter) => unsafe[letter]);
}

export async function savedPage(stories) {
  const answer = await fetch("/window/saved.html");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  const kept = stories.filter((story) => story.rounds.length).map((story) => ({ ...story, working: null, stopped: !over(story) || story.stopped }));
  const page = await answer.text(), slot = 'id="trace">null<';
  return page.replace(slot, () => `id="trace">${inlined({ version: 1, stories: kept })}<`);
}

export function handOver(page, stories) {
  const address = URL.createObjectURL(new Blob([page], { type: "text/html;charset=utf-8" }));
  const name = ["unspool", ...stories.map((story) => story.asked.method.replace(/[^a-z0-9]+/gi, "-"))].join("-").slice(0, 80);
  const link = Object.assign(document.createElement("a"), { href: address, download: `${name}.html` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
  return link.download;
}

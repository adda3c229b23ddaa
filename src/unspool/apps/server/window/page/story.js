// A story: all that was told of one text, and what there was to see of it after any number of rounds.
export function begun(asked) {
  return { asked, about: null, rounds: [], working: null, ended: null, error: null, stopped: false };
}

export function told(story, news) {
  if (news.began) story.about = news.began;
  else if (news.round) { story.rounds.push(news.round); story.working = null; }
  else if (news.working) story.working = news.working;
  else if (news.ended) story.ended = news.ended;
  else if (news.error) story.error = news.error.message;
}

export function over(story) {
  return Boolean(story.ended || story.error || story.stopped);
}

export function total(split) {
  return split ? split.draft + split.forward + split.rule + split.other : 0;
}

// How many rounds were over after so many seconds.
export function roundsBy(story, time) {
  const later = story.rounds.findIndex((round) => total(round.seconds) > time);
  return later < 0 ? story.rounds.length : later;
}

// The text after so many rounds: its cells in order, and what is known of the last round.
export function momentOf(story, count) {
  const shown = story.rounds.slice(0, count), last = shown[shown.length - 1] ?? null;
  const whole = count >= story.rounds.length && story.ended;
  const cells = [];
  let tokens = 0, places = null;
  shown.forEach((round, index) => {
    if (round.canvas) places = painted(cells, round.canvas, index);
    for (const token of round.tokens) {
      tokens += 1;
      const cell = { ...token, round: round.round, when: index, number: tokens };
      if (token.place === undefined) cells.push(cell);
      else cells[token.place] = { ...cell, when: cells[token.place]?.when ?? index, settled: true };
    }
  });
  if (places !== null) cells.length = Math.max(places, tokens);
  cells.forEach((cell, index) => { if (!cell.hole) cells[index] = { ...cell, fresh: cell.when === shown.length - 1 }; });
  if (whole && story.ended.tail && cells.length) {
    const end = cells.findLastIndex((cell) => cell && cell.number);
    if (end >= 0) cells[end] = { ...cells[end], text: cells[end].text + story.ended.tail };
  }
  const spent = whole ? story.ended : last ?? story.working;
  const looks = places === null ? 0 : Math.max(1, ...cells.map((cell) => cell?.look ?? 0));
  const filled = whole || places === null ? tokens : cells.filter((cell) => !cell.hole).length;
  return {
    cells, tokens: filled, looks, canvas: places !== null, tree: last?.tree ?? null, number: shown.length,
    own: last && places === null ? last.tokens.find((token) => token.origin === "added") ?? null : null,
    forwards: spent?.forwards ?? {}, seconds: spent?.seconds ?? null,
    drafted: last?.drafted ?? 0, accepted: last?.accepted ?? 0,
  };
}

// The places that changed in the round with this number; one that only became final is not new.
function painted(cells, canvas, when) {
  for (let place = cells.length; place < canvas.size; place += 1) cells[place] = { hole: true };
  for (const [place, text, look, settled] of canvas.changes) {
    const old = cells[place], same = old.name === text && old.look === look;
    if (text === null) cells[place] = { hole: true };
    else cells[place] = same ? { ...old, settled } : { text, name: text, origin: "unmasked", look, round: look, settled, when };
  }
  return canvas.size;
}

// Whether two finished texts are the same, in words; nothing before both are.
export function compared(stories) {
  if (stories.length < 2 || !stories.every((story) => over(story) && story.rounds.length)) return "";
  const [one, other] = stories.map((story) => story.rounds.flatMap((round) => round.tokens));
  const parts = one.findIndex((token, index) => index < other.length && token.id !== other[index].id);
  if (parts >= 0) return `The texts part at token ${parts + 1}.`;
  const shorter = Math.min(one.length, other.length);
  return one.length === other.length ? "Both texts are the same, token for token." : `The texts are the same for ${shorter} tokens, where one of them ends.`;
}

export function textOf(story) {
  return story.rounds.flatMap((round) => round.tokens.map((token) => token.text)).join("") + (story.ended?.tail ?? "");
}

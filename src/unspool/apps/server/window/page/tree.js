// The draft of a round as a tree: what was guessed, what the model gives each guess, and how far it stood.
import { counted, drawn, make, percent, spelt } from "./make.js";

const LETTER = 7.3, HIGH = 30, GAP = 8, PAD = 9, SPACE = 22;

export class TreeView {
  constructor() {
    this.note = make("p", { class: "of" });
    this.scroll = make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "The draft as a tree" });
    this.box = make("section", { class: "panel", "aria-label": "Draft of this round" }, make("h3", {}, "Draft of this round"), this.note, this.scroll);
    this.key = "";
  }

  show(moment) {
    const key = JSON.stringify([moment.tree, moment.own?.name]);
    if (key === this.key) return;
    this.key = key;
    if (!moment.tree) {
      this.note.textContent = moment.number ? "Nothing was drafted." : "";
      this.scroll.replaceChildren();
      this.scroll.hidden = true;
      return;
    }
    this.scroll.hidden = false;
    const { nodes, size } = moment.tree, stood = nodes.filter((node) => node.accepted).length, left = size - nodes.length;
    const drafted = size - nodes.filter((node) => node.text === null).length;
    this.note.textContent = `${stood} of ${counted(drafted, "drafted token")} stood${moment.own ? `, then the target added “${spelt(moment.own.name, 24)}”` : ""}.${left ? ` ${left} more are not drawn.` : ""}`;
    this.scroll.replaceChildren(pictured(moment.tree.nodes, moment.own, this.note.textContent));
  }
}

function pictured(told, own, said) {
  const nodes = told.map((node) => ({ ...node, kids: [] })), root = { kids: [] };
  nodes.forEach((node) => (node.parent < 0 ? root : nodes[node.parent]).kids.push(node));
  let tip = root;
  while (tip.kids.some((kid) => kid.accepted)) tip = tip.kids.find((kid) => kid.accepted);
  // What stood comes first at every node, so that it runs along the top.
  for (const node of [root, ...nodes]) node.kids.sort((one, other) => Number(other.accepted) - Number(one.accepted));
  if (own) tip.kids.unshift({ text: own.name, p: own.p, own: true, kids: [] });
  const columns = [], placed = [];
  let rows = 0;
  const place = (node, depth) => {
    node.kids.forEach((kid, index) => {
      if (index) rows += 1;
      kid.label = kid.text === null ? "▢" : spelt(kid.text, 14);
      kid.depth = depth;
      kid.row = rows;
      kid.from = node;
      columns[depth] = Math.max(columns[depth] ?? 0, [...kid.label].length * LETTER + 2 * PAD);
      placed.push(kid);
      place(kid, depth + 1);
    });
  };
  place(root, 0);
  const lefts = columns.map((_, depth) => 14 + columns.slice(0, depth).reduce((sum, wide) => sum + wide + SPACE, 0) + SPACE / 2);
  const width = (lefts[lefts.length - 1] ?? 0) + (columns[columns.length - 1] ?? 0) + 4, height = (rows + 1) * (HIGH + GAP);
  const middle = (row) => row * (HIGH + GAP) + HIGH / 2 + 3;
  const right = (node) => (node === root ? 10 : lefts[node.depth] + widthOf(node));
  const edges = placed.map((node) => {
    const x = right(node.from), y = middle(node.from === root ? 0 : node.from.row), to = middle(node.row);
    const bend = lefts[node.depth] - SPACE / 2;
    return drawn("path", { class: `edge ${kindOf(node)}`, d: `M${x} ${y}H${bend}V${to}H${lefts[node.depth]}` });
  });
  const boxes = placed.map((node) => {
    const x = lefts[node.depth], y = middle(node.row) - HIGH / 2, wide = widthOf(node);
    return drawn("g", { class: `node ${kindOf(node)}` },
      drawn("title", {}, nodeSaid(node)),
      drawn("rect", { x, y, width: wide, height: HIGH, rx: 5 }),
      drawn("text", { x: x + PAD, y: y + 18 }, node.label),
      node.p === undefined ? null : drawn("rect", { class: "likely", x: x + PAD, y: y + HIGH - 7, width: Math.max(1.5, (wide - 2 * PAD) * node.p), height: 3, rx: 1.5 }));
  });
  return drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said },
    drawn("circle", { class: "root", cx: 6, cy: middle(0), r: 4 }), ...edges, ...boxes);
}

function widthOf(node) {
  return [...node.label].length * LETTER + 2 * PAD;
}

function kindOf(node) {
  return node.own ? "own" : node.accepted ? "stood" : "fell";
}

function nodeSaid(node) {
  const by = node.p === undefined ? "" : ` The model gives it ${percent(node.p)}.`;
  if (node.text === null) return "A hole: the model is asked what would stand here.";
  if (node.own) return `“${node.text}”: the target's own token.${by}`;
  return `“${node.text}”: drafted${node.q === undefined ? "" : ` with ${percent(node.q)}`}, ${node.accepted ? "stood" : "did not stand"}.${by}`;
}

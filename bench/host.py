"""What drafting costs the host: microseconds per round of proposing and learning, with a target that answers at once.

    python bench/host.py [--methods merge auto] [--text FILE] [--json FILE]

The text is this repository's own prose and code, cut into words. In place of a model stand counts over the whole of it:
after two tokens the target's likeliest next ones are those that follow them most often, so that rounds go as they do
with a model that knows the text well, and what is written is the text. A forward of a small model on a GPU takes about
a millisecond; what is measured here comes on top of it in every round, and the engine's own share is in bench/asks.py.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from record import save

from unspool.core.asks import TARGET, GiveWay, Price, Scores
from unspool.core.chance import Philox
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Prefix, Same
from unspool.loops.drafter import Draft, Proposing
from unspool.rules.draft import Auto, BigramRecycling, Lookup, Merge, Prefilled, Recycle, Suffix
from unspool.rules.grow import FREE

BAR = 250.0  # microseconds per round at 31 nodes: a quarter of what a small model's forward takes on a GPU
NODES = (8, 16, 31, 63)
CONTEXTS = (1024, 8192)
ROUNDS = 300
WIDTH = 8
PROMPT = 512  # places of the prompt whose laws are told
SHARES = (0.8, 0.18, 0.02)  # of what follows two tokens, the last one, and any
HERE = Path(__file__).parents[1]

Row = list[tuple[int, float]]


def drafts(nodes: int) -> dict[str, Draft]:
    """The drafters that need no model, as wide as the budget lets them be."""
    return {
        "suffix": Suffix(depth=nodes),
        "lookup": Lookup(depth=nodes),
        "recycle": Prefilled(Recycle()),
        "bigram_recycling": Prefilled(BigramRecycling()),
        "merge": Prefilled(Merge(Suffix(depth=nodes), BigramRecycling())),
        "auto": Auto(),
    }


def read(file: str | None) -> tuple[int, ...]:
    """A text as numbers of its words, in the order in which they first stand."""
    pages = (
        [Path(file)]
        if file
        else [HERE / "README.md", *sorted(HERE.glob("docs/*.md")), *sorted(HERE.glob("src/**/*.py"))]
    )
    words = re.findall(r" ?\w+| ?[^\w\s]+|\s+", "\n".join(page.read_text(encoding="utf-8") for page in pages))
    number: dict[str, int] = {}
    return tuple(number.setdefault(word, len(number)) for word in words)


class Counts:
    """The likeliest tokens after two others: those that follow both most often, then those that follow the last."""

    def __init__(self, text: tuple[int, ...]) -> None:
        self.text = text
        self.rows: dict[tuple[int, int], Row] = {}
        self.two: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
        self.one: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self.none = Counter(text)
        for a, b, c in zip(text, text[1:], text[2:], strict=False):
            self.two[a, b][c] += 1
            self.one[b][c] += 1

    def after(self, a: int, b: int) -> Row:
        """The row, made when it is first asked for."""
        if (a, b) not in self.rows:
            weights: defaultdict[int, float] = defaultdict(float)
            for share, seen in zip(SHARES, (self.two[a, b], self.one[b], self.none), strict=True):
                for token, count in seen.most_common(WIDTH):
                    weights[token] += share * count / seen.total()
            best = sorted(weights.items(), key=lambda found: -found[1])[:WIDTH]
            total = sum(p for _, p in best)
            self.rows[a, b] = [(token, p / total) for token, p in best]
        return self.rows[a, b]


@dataclass(frozen=True)
class Ready(Scores):
    """Scores whose best tokens are at hand."""

    known: tuple[Row, ...] = ()

    def best(self, k: int) -> list[Row]:
        """As they are."""
        return list(self.known)


def scored(counts: Counts, text: tuple[int, ...], tree: Tree, read: Iterable[int] = ()) -> Ready:
    """What the counts say after the text and after every node, and at the places that are read for the first time."""
    tokens = [drawn.token for drawn in tree.drawn]
    above = [text[-1] if parent < 0 else tokens[parent] for parent in tree.parent]
    rows = [counts.after(a, b) for a, b in zip((text[-2], *above), (text[-1], *tokens), strict=True)]
    tops = {place: counts.after(text[place - 2], text[place - 1]) for place in read}
    return Ready((), (), tops=tops, known=tuple(list(row) for row in rows))


def walked(tree: Tree, text: tuple[int, ...]) -> int:
    """How many drafted tokens the text agrees with."""
    node, depth = ROOT, 0
    while (kid := tree.child(node, text[depth])) is not None:
        node, depth = kid, depth + 1
    return depth


def proposed(asking: Proposing) -> Tree:
    """The tree, where a forward costs nothing and there is no draft model."""
    reply = None
    while True:
        try:
            ask = asking.send(reply)
        except StopIteration as end:
            tree: Tree = end.value
            return tree
        if isinstance(ask, GiveWay):
            reply = None
            continue
        assert isinstance(ask, Price), ask
        reply = FREE if ask.by == TARGET else None


def measured(draft: Draft, counts: Counts, context: int, nodes: int) -> dict[str, float]:
    """The medians of so many rounds."""
    text, chance = counts.text, Philox(0)
    prefix = Prefix.of(text[:context], Same())
    source = draft.begin(prefix)
    tree = proposed(source.propose(prefix, nodes, chance))  # reads the prompt: once per request, not per round
    source.learn(prefix, tree, scored(counts, prefix.text, tree, range(max(2, context - PROMPT), context)))
    propose, learn, size = [], [], []
    for _ in range(ROUNDS):
        a = perf_counter()
        tree = proposed(source.propose(prefix, nodes, chance))
        b = perf_counter()
        start = len(prefix)
        scores = scored(counts, prefix.text, tree)
        prefix = prefix.then(text[start : start + walked(tree, text[start : start + nodes + 1]) + 1])
        c = perf_counter()
        source.learn(prefix, tree, scores)
        learn.append(perf_counter() - c)
        propose.append(b - a)
        size.append(len(tree))
    return {
        "propose_us": round(median(propose) * 1e6, 1),
        "learn_us": round(median(learn) * 1e6, 1),
        "round_us": round(median(map(sum, zip(propose, learn, strict=True))) * 1e6, 1),
        "nodes": round(sum(size) / ROUNDS, 1),
        "tokens_per_forward": round((len(prefix) - context) / ROUNDS, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="+", default=list(drafts(1)), choices=list(drafts(1)), metavar="NAME")
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    counts = Counts(read(args.text))
    rows: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    print(f"{'':8} {'context':>8} {'budget':>7} {'propose':>11} {'learn':>11} {'round':>11} {'nodes':>6} {'tokens':>7}")
    for name in args.methods:
        for context in CONTEXTS:
            for nodes in NODES:
                row = measured(drafts(nodes)[name], counts, context, nodes)
                rows.setdefault(name, {}).setdefault(str(context), {})[str(nodes)] = row
                print(
                    f"{name:8} {context:8} {nodes:7} {row['propose_us']:8.1f} µs {row['learn_us']:8.1f} µs "
                    f"{row['round_us']:8.1f} µs {row['nodes']:6.1f} {row['tokens_per_forward']:7.3f}"
                    + (f"  (bar {BAR:.0f})" if nodes == 31 else "")
                )
    if args.json:
        save(args.json, {"bar_us": BAR, "rounds": ROUNDS, "per_round": rows})


if __name__ == "__main__":
    main()

"""What drafting without a model costs: microseconds per round of proposing and learning, and how memory grows.

python bench/drafts.py [--json FILE]
"""

from __future__ import annotations

import argparse
import random
import tracemalloc
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch
from record import save

from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.law import Law
from unspool.core.warp import Prefix, Same
from unspool.rules.draft import Corpus, Lookup, Recycle, Retrieve, Stand, Store, Suffix, SuffixTree, Trigram

BAR = 50.0  # microseconds per round for the automaton and lookup drafters at 8k context
BARRED = ("lookup", "suffix", "suffix + corpus")
VOCAB = 49152
ROUNDS = 200
GAIN = 2  # tokens that a round adds to the text


def prose(size: int, seed: int) -> tuple[int, ...]:
    """A text with the habits of texts: words as frequent as 1/rank, and earlier passages that come back, bent."""
    dice = random.Random(seed)
    common = [1.0 / (rank + 1) for rank in range(4000)]
    text: list[int] = []
    while len(text) < size:
        if len(text) > 50 and dice.random() < 0.3:
            start = dice.randrange(len(text) - 20)
            text += text[start : start + dice.randrange(3, 20)]
        else:
            text += dice.choices(range(4000), common, k=dice.randrange(2, 12))
    return tuple(text[:size])


def rounds(draft, context: int, budget: int, laws: torch.Tensor) -> dict[str, float]:
    """Microseconds per round, proposing and learning apart, and bytes that the source holds per token."""
    text = prose(context + ROUNDS * GAIN, seed=7)
    prefixes = [Prefix.of(text[: context + i * GAIN], Same()) for i in range(ROUNDS + 1)]
    chance, proposing, learning = Philox(0), [], []
    tracemalloc.start()
    source = draft.begin(prefixes[0])
    _tree(source.propose(prefixes[0], budget, chance))
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    began = perf_counter()
    source = draft.begin(prefixes[0])
    _tree(source.propose(prefixes[0], budget, chance))  # reads the prompt: once per request, not per round
    start = perf_counter() - began
    for before, after in pairwise(prefixes):
        a = perf_counter()
        tree = _tree(source.propose(before, budget, chance))
        b = perf_counter()
        scores = Scores([Law(laws[i]) for i in range(len(tree))], [Law(laws[-1])])
        c = perf_counter()
        source.learn(after, tree, scores)
        learning.append(perf_counter() - c)
        proposing.append(b - a)
    return {
        "propose_us": median(proposing) * 1e6,
        "learn_us": median(learning) * 1e6,
        "mean_us": (sum(proposing) + sum(learning)) / ROUNDS * 1e6,
        "start_ms": start * 1e3,
        "bytes_per_token": held / context,
    }


def _tree(asking):
    try:
        next(asking)
    except StopIteration as done:
        return done.value
    raise AssertionError("a drafter without a model asks nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.manual_seed(0)
    laws = torch.randn(64, VOCAB)
    others = [prose(20_000, seed) for seed in (1, 2)]
    drafts = {
        "lookup": (Lookup(), 5),
        "suffix": (Suffix(), 16),
        "suffix + corpus": (Suffix(corpus=Corpus(others)), 16),
        "suffixtree": (SuffixTree(), 16),
        "recycle": (Recycle(), 24),
        "trigram": (Trigram(), 16),
        "stand": (Stand(), 24),
        "retrieve": (Retrieve(Store(others)), 16),
    }
    print(f"{'':16} {'context':>8} {'propose':>10} {'learn':>10} {'mean round':>11} {'prompt':>10} {'memory':>12}")
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for name, (draft, budget) in drafts.items():
        for context in (1024, 8192):
            row = rounds(draft, context, budget, laws)
            rows.setdefault(name, {})[str(context)] = row
            print(
                f"{name:16} {context:8} {row['propose_us']:7.1f} µs {row['learn_us']:7.1f} µs {row['mean_us']:8.1f} µs "
                f"{row['start_ms']:7.1f} ms {row['bytes_per_token']:6.0f} B/token"
                + (f"  (bar {BAR:.0f})" if name in BARRED else "")
            )
    if args.json:
        save(args.json, {"bar_us": BAR, "barred": BARRED, "rounds": ROUNDS, "vocab": VOCAB, "per_round": rows})


if __name__ == "__main__":
    main()

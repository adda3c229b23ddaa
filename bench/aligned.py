"""Grammar-aligned sampling on a toy: how far local masking is from the truth, and how ASAp gets there, text by text.

    python bench/aligned.py [--depth 6] [--samples 2000] [--seeds 4] [--json FILE]

Texts have `depth` tokens out of two. `tree` allows those of zeros alone and those that begin with 1, {0…0} ∪ {1x…x}:
one corner that masking leads into. `even` allows an even number of ones: a corner behind every beginning, so that what
was seen is at first held against what was not, and the gap may rise before it falls. The model is a table of random
laws. After so many texts the law of the next one, given what was learnt, is enumerated, not sampled; the gap is its KL
to p(text | allowed) in nats, on the mean over tables. Local masking is ASAp before the first text, and stays there.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from record import save
from torch import Tensor

from unspool.core.chance import Chance, Every, Philox
from unspool.core.stop import Stop
from unspool.rules.constrain import Asap, Constrained, Futures
from unspool.rules.constrain.constraint import mask_of
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

PROMPT = (0,)
Texts = dict[tuple[int, ...], float]


@dataclass(frozen=True)
class Toy:
    """What a constraint knows of a text: its tokens, and which of two may follow by a rule."""

    rule: Callable[[tuple[int, ...], int], bool]
    tokens: tuple[int, ...] = ()
    alive: bool = True

    def start(self) -> Toy:
        return Toy(self.rule)

    def step(self, token: int) -> Toy:
        return Toy(self.rule, (*self.tokens, token), self.allows(token))

    def mask(self) -> Tensor:
        return mask_of(2, tuple(x for x in range(2) if self.allows(x)))

    def allows(self, token: int) -> bool:
        return self.alive and self.rule(self.tokens, token)

    def forced(self) -> tuple[int, ...]:
        return ()

    def complete(self) -> bool:
        return self.alive


def grammars(depth: int) -> dict[str, Toy]:
    """The two sets of texts."""

    def tree(tokens: tuple[int, ...], token: int) -> bool:
        return tokens[:1] != (0,) or token == 0

    def even(tokens: tuple[int, ...], token: int) -> bool:
        return len(tokens) < depth - 1 or (sum(tokens) + token) % 2 == 0

    return {"tree": Toy(tree), "even": Toy(even)}


def table(seed: int) -> Table:
    """A random model of two tokens in which 0 is likely to begin with, and unlikely to go on."""

    def weights(text: tuple[int, ...]) -> list[float]:
        chance = random.Random(hash((seed, text)))
        share = 0.5 + 0.4 * chance.random() if len(text) == 1 else 0.2 + 0.6 * chance.random()
        return [share, 1 - share]

    return Table(2, weights)


def truth(model: Table, depth: int, toy: Toy) -> Texts:
    """p(text | allowed)."""
    found: Texts = {}

    def grow(text: tuple[int, ...], mass: float, state: Toy) -> None:
        if len(text) == depth:
            found[text] = mass
            return
        law = model.law((*PROMPT, *text))
        for x in range(2):
            if state.allows(x):
                grow((*text, x), mass * law[x], state.step(x))

    grow((), 1.0, toy)
    total = sum(found.values())
    return {text: mass / total for text, mass in found.items()}


def text_of(asap: Asap, model: Table, depth: int, toy: Toy, chance: Chance) -> tuple[int, ...]:
    """One text more; the sampler learns from it."""
    engine = Engine({"target": model})
    job = engine.submit(asap, PROMPT, chance, Constrained(toy), Stop(most=depth))
    engine.run()
    return job.result().tokens


def gap(asap: Asap, model: Table, depth: int, toy: Toy, wanted: Texts) -> float:
    """KL(the next text's law ‖ the truth), with every branch of the next text visited."""
    law = Every().law(
        lambda chance: text_of(replace(asap, futures=Futures(dict(asap.futures.roots))), model, depth, toy, chance)
    )
    return sum(mass * math.log(mass / wanted[text]) for text, mass in law.items() if mass > 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    counts = sorted({0, args.samples} | {c for c in (1, 3, 10, 30, 100, 300, 1000) if c < args.samples})
    result: dict[str, dict[int, float]] = {}
    for name, toy in grammars(args.depth).items():
        gaps: dict[int, list[float]] = {count: [] for count in counts}
        for seed in range(args.seeds):
            model, asap = table(seed), Asap()
            wanted, done = truth(model, args.depth, toy), 0
            for count in counts:
                for number in range(done, count):
                    text_of(asap, model, args.depth, toy, Philox(seed, number))
                done = count
                gaps[count].append(gap(asap, model, args.depth, toy, wanted))
            print(f"{name}, table {seed}", flush=True)
        result[name] = {count: sum(found) / len(found) for count, found in gaps.items()}
    print(f"\n{'KL in nats after':18}" + "".join(f"{count:>10}" for count in counts) + "   texts")
    for name, mean in result.items():
        falls = all(mean[a] >= mean[b] - 1e-12 for a, b in pairwise(counts))
        said = f"   falls with every column: {falls}; below 1e-2 at the end: {mean[args.samples] < 1e-2}"
        print(f"{name:18}" + "".join(f"{max(0.0, mean[count]):>10.1e}" for count in counts) + said)
    if args.json:
        save(args.json, {"depth": args.depth, "samples": args.samples, "seeds": args.seeds, "kl": result})


if __name__ == "__main__":
    main()

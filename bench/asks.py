"""What the ask protocol costs: decoders run against a model that answers at once, so that only the protocol is left.

python bench/asks.py [--json FILE]
"""

from __future__ import annotations

import argparse
from time import perf_counter

from record import save

from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Chain, Lookup
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import TableSession
from unspool.runtime.engine.engine import Engine

BAR = 40.0  # microseconds per ask


class Instant:
    """A model that always answers with the same point law."""

    vocab, context, room = 100, None, None

    def __init__(self) -> None:
        self.law = Law.point(7, Law.of([1.0] * self.vocab))

    def open(self, text, owner=""):
        return Idle([tuple(text)])

    def forget(self):
        pass

    def score(self, asked):
        return [Scores([self.law] * len(ask.tree), [self.law], rows=1) for ask in asked]


class Idle(TableSession):
    """A session with nothing to keep."""

    def keep(self, tree, nodes, extra):
        pass


METHODS = {
    "plain": plain(),
    "lookup under sample matching": Speculate(Lookup(2, 1, 4)),
    "chain of 4 under rejection": Speculate(Chain(4), rejection),
}


def micro(method, tokens: int = 3000) -> float:
    """Microseconds per ask of one decoder; the best of five runs, since noise only adds."""
    times = []
    for _ in range(5):
        engine = Engine({"target": Instant(), "draft": Instant()})
        job = engine.submit(method, (1, 2, 3), Philox(0), stop=Stop(most=tokens))
        began = perf_counter()
        engine.run()
        times.append((perf_counter() - began) / job.trace.asks * 1e6)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    rows = {name: micro(method) for name, method in METHODS.items()}
    for name, cost in rows.items():
        print(f"{name:28} {cost:6.1f} µs per ask  (bar {BAR:.0f})")
    if args.json:
        save(args.json, {"bar_us": BAR, "us_per_ask": rows})


if __name__ == "__main__":
    main()

"""Recorded texts as a model whose forwards take what they are said to, by a clock of their own (bench/recorded.py)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.cost import Cost
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.recipes.methods import method
from unspool.rules.draft import auto
from unspool.rules.draft.lookup import Places
from unspool.rules.draft.merge import Merged
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

FILE = Path(__file__).parents[1] / "data" / "rounds.json"
# Milliseconds of forwards of SmolLM2-135M by their rows, with one thread: estimates, from machines that were not quiet.
AVX2 = Cost((1, 2, 3, 4, 5, 8, 9, 16), (5.8, 6.2, 7.3, 8.7, 11.4, 16.1, 18.5, 30.0))
AVX512 = Cost((1, 2, 4, 8, 16), (12.8, 14.0, 15.9, 23.0, 38.0))
ROUND, LOOK, NOTE, HEADS, COPY = 0.4, 0.2, 0.25, 0.5, 0.1  # beside them, estimated too


@cache
def families() -> dict[str, dict]:
    return json.loads(FILE.read_text(encoding="utf-8"))


class Replayed(Table):
    """The target of a recorded text; what it says where the text has not been is what it last said after that token."""

    guesses = True

    def __init__(self, recorded: dict, cost: Cost, heads: bool) -> None:
        self.text, self.best, self.guesses = tuple(recorded["text"]), recorded["best"], heads
        self.cost, self.now, self.told, self.prompt = cost, 0.0, recorded["heads"], recorded["prompt"]
        super().__init__(recorded["tokens"] + 1, self.said)

    def said(self, text: tuple[int, ...]) -> list[float]:
        weights, end = [1e-6] * self.vocab, len(text)
        on = text == self.text[:end]
        at = end - 1 if on else next((i for i in range(end - 1, -1, -1) if self.text[i : i + 1] == text[-1:]), None)
        for token, p in self.best[at] if at is not None else ():
            weights[token] = max(p, 1e-6)
        if on and end < len(self.text):
            weights[self.text[end]] = 2.0  # what was written, to the last near tie
        return weights

    def score(self, asked) -> list[Scores]:
        self.now += ROUND + sum(self.cost(1 + len(ask.tree)) for ask in asked)
        return super().score(asked)

    def _ahead(self, session, tree, k, node, token):
        self.now += HEADS
        end = len(session.text(tree, node))
        return [[tuple(pair) for pair in told] for told in self.told[end - self.prompt]] if end < len(self.text) else []


def replayed(recorded: dict, spec: str, cost: Cost, monkeypatch, heads: bool = True):
    """The milliseconds that a method takes for a recorded text, and its trace."""
    model = Replayed(recorded, cost, heads)

    def taking(owner, name, cost_of):
        real = getattr(owner, name)

        def acted(*given):
            model.now += cost_of
            return real(*given)

        monkeypatch.setattr(owner, name, acted)

    taking(Merged, "gather", LOOK)
    taking(Merged, "learn", NOTE)
    taking(Places, "read", COPY)
    monkeypatch.setattr(auto, "perf_counter", lambda: model.now / 1e3)
    seconds = Cost(cost.rows, tuple(time / 1e3 for time in cost.times))
    engine = Engine({"target": model}, lambda _: seconds)
    prompt, text = model.text[: model.prompt], model.text[model.prompt :]
    job = engine.submit(method(spec), prompt, Philox(0, 0), Temperature(0.0), Stop(most=len(text)), laws=False)
    engine.run()
    monkeypatch.undo()
    assert job.result().tokens == text
    return model.now, job.trace

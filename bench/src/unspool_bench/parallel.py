"""The parallel benchmark: how right an answer stays when several of its places are filled per forward."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from random import Random
from typing import Any

from unspool.core.chance import Chance, Every, Philox, TooManyBranches
from unspool.core.claim import Method
from unspool.core.errors import BadRequest, UnspoolError
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.recipes.methods import method as named
from unspool.recipes.methods import needs
from unspool.runtime.engine.contracts import Infill
from unspool.runtime.engine.engine import Engine

from .closed import IDEAL
from .oracle import Exact, Tokens
from .round_nats import FilledCanvas, filled
from .schedule import ahead, outcome
from .tasks import Task, answers, task


@dataclass(frozen=True)
class ParallelCell:
    """One cell of the benchmark: a task of n items, a model, and a method; `k` if that fills k places per look."""

    task: Task
    n: int
    model: str
    method: str
    k: int | None = None


@dataclass(frozen=True)
class ParallelRow:
    """What one cell gave.

    `error` is the standard error of the accuracy, 0 if every branch was followed. `ideal` and `bound` are what an ideal
    model reaches and the nats it must lose, where k places are filled per look. `divergence` is KL(P ‖ Q) in nats from
    the true law of the answers to what the method gives, where all of it was enumerated; it is infinite if some right
    answer is never given. `information` is the mean of the nats that an answer told, `fullest` that of its fullest
    round, `least` that of ⌈information / fullest⌉, which the number of rounds cannot undercut.
    """

    task: str
    n: int
    places: int
    model: str
    method: str
    k: int | None
    accuracy: float
    error: float
    tokens_per_forward: float
    forwards: float
    ideal: float | None
    bound: float | None
    divergence: float | None
    information: float
    fullest: float
    least: float
    texts: int
    enumerated: bool

    def record(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)


def schedule(k: int) -> str:
    """The method that fills k places per look from left to right, each from its own law: what closed forms are for."""
    return f"quota:steps=1,block={k}"


def plans(
    tasks: Iterable[Task], n: int, models: Sequence[str], methods: Sequence[str], widths: Sequence[int]
) -> list[ParallelCell]:
    """Every cell: each task with every schedule of `widths` and every method, on every model."""
    cells = []
    for each in tasks:
        items = min(n, each.most)
        size = answers(each.prompt(items, Random(0))).size
        steps = dict.fromkeys(min(k, size) for k in widths)
        for model in models:
            cells += [ParallelCell(each, items, model, schedule(k), k) for k in steps]
            cells += [ParallelCell(each, items, model, spec) for spec in methods]
    return cells


@dataclass(frozen=True)
class Bench:
    """How to measure: questions per cell, branches to follow before drawing instead, temperature and seed.

    The oracle at a temperature above 0 is enumerated on one question, since all questions of a task are alike but for
    the names of the items; everything else is drawn, one answer to each of `texts` questions.
    """

    models: dict[str, Infill]
    texts: int = 100
    branches: int = 1000
    temperature: float = 1.0
    seed: int = 0
    exact: str = "oracle"  # the model that may be enumerated

    def __call__(self, cells: Iterable[ParallelCell]) -> Iterator[ParallelRow]:
        """A row per cell, as they are measured."""
        for plan in cells:
            try:
                yield self._measured(plan)
            except UnspoolError as error:
                where = f"{plan.method} on {plan.task.name}, n = {plan.n}, with the {plan.model}"
                raise BadRequest(f"{where}: {error}") from error

    def _measured(self, plan: ParallelCell) -> ParallelRow:
        if needed := needs(plan.method):
            raise BadRequest(f"it needs other models ({', '.join(needed)}), and this benchmark has one at a time")
        method, random = named(plan.method), Random(f"{self.seed} {plan.task.name} {plan.n}")
        prompts = [plan.task.prompt(plan.n, random) for _ in range(self.texts)]
        exact = answers(prompts[0])
        law = self._law(plan.model, method, prompts[0], exact)
        if law is not None:
            return _row(plan, exact, [(exact, told, p) for told, p in law.items()], len(law), True)
        told = self._drawn(plan.model, method, prompts)
        share = 1 / len(told)
        texts = [(answers(prompt), one, share) for prompt, one in zip(prompts, told, strict=True)]
        return _row(plan, exact, texts, len(told), False)

    def _law(self, model: str, method: Method, prompt: Tokens, exact: Exact) -> dict[FilledCanvas, float] | None:
        """The exact law of what happens; None if it is not to be had, or has too many branches."""
        if model != self.exact or self.temperature == 0:
            return None
        engine = self._engine(model)

        def once(chance: Chance) -> FilledCanvas:
            return self._decoded(engine, method, [(prompt, chance)])[0]

        try:
            return Every(self.branches).law(once)
        except TooManyBranches:
            return None

    def _drawn(self, model: str, method: Method, prompts: Sequence[Tokens]) -> list[FilledCanvas]:
        """One answer to each question, all in one batch."""
        asked = [(prompt, Philox(self.seed, stream)) for stream, prompt in enumerate(prompts)]
        return self._decoded(self._engine(model), method, asked)

    def _engine(self, model: str) -> Engine:
        return Engine({"target": self.models[model]})

    def _decoded(self, engine: Engine, method: Method, asked: Iterable[tuple[Tokens, Chance]]) -> list[FilledCanvas]:
        warp = Temperature(self.temperature)
        jobs = [
            engine.submit(method, prompt, chance, warp, Stop(most=answers(prompt).size)) for prompt, chance in asked
        ]
        engine.run()
        return [filled(job) for job in jobs]


@cache
def best(name: str, n: int, k: int) -> tuple[float, float]:
    """The success of an ideal model and the nats it must lose with k places per look: closed forms, else enumerated."""
    if name in IDEAL:
        return IDEAL[name].success(n, k), IDEAL[name].bound(n, k)
    exact = answers(task(name).prompt(n, Random(0)))
    found = outcome(exact, ahead(exact.size, k))
    return found.success, found.bound


def _row(
    plan: ParallelCell, exact: Exact, texts: Sequence[tuple[Exact, FilledCanvas, float]], count: int, enumerated: bool
) -> ParallelRow:
    """The means over answers, each with the law it is held against and its weight."""
    right = math.fsum(p for law, told, p in texts if law.mass(told.answer) > 0)
    forwards = math.fsum(p * told.forwards for _, told, p in texts)
    ideal, bound = (None, None) if plan.k is None else best(plan.task.name, plan.n, plan.k)
    return ParallelRow(
        task=plan.task.name,
        n=plan.n,
        places=exact.size,
        model=plan.model,
        method=plan.method,
        k=plan.k,
        accuracy=right,
        error=0.0 if enumerated else math.sqrt(max(0.0, right * (1 - right)) / count),
        tokens_per_forward=exact.size / forwards,
        forwards=forwards,
        ideal=ideal,
        bound=bound,
        divergence=_divergence(texts) if enumerated else None,
        information=math.fsum(p * told.information for _, told, p in texts),
        fullest=math.fsum(p * max(told.nats, default=0.0) for _, told, p in texts),
        least=math.fsum(p * told.least for _, told, p in texts),
        texts=count,
        enumerated=enumerated,
    )


def _divergence(texts: Sequence[tuple[Exact, FilledCanvas, float]]) -> float:
    """KL(P ‖ Q) = Σ P ln(P/Q), infinite where Q misses an answer that P gives."""
    reached: dict[Tokens, float] = {}
    for _, told, p in texts:
        reached[told.answer] = reached.get(told.answer, 0.0) + p
    law = texts[0][0]
    pairs = [(law.mass(answer), q) for answer, q in reached.items()]
    if math.fsum(p for p, _ in pairs) < 1 - 1e-9:
        return math.inf
    return max(0.0, math.fsum(p * math.log(p / q) for p, q in pairs if p > 0))

"""A table that answers looks as a network with a cache does, so that rules about caches and soft holes have a gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Field, Status
from unspool.core.law import Law
from unspool.proof import Case
from unspool.runtime.cache.table_model import Table, TableSession
from unspool.runtime.engine.contracts import Causal, LookRequest


class Kept(TableSession):
    """What every place of the canvas saw when it was computed last."""

    def __init__(self, leaves: list[tuple[int, ...]]) -> None:
        super().__init__(leaves)
        self.views: dict[int, tuple[int, ...]] = {}


class Remembering(Table):
    """The law at a place is the mean of its laws given what each `seen` place saw when it was last `fresh`.

    Where everything is fresh, that is the law of the plain table. Where a hole is softened, a text counts by
    (1 − weight) + weight·p of its token there: a mask allows every token, a token only itself. With `renew`, the first
    of what is not fresh whose own token has changed are computed too.
    """

    def open(self, text: Sequence[int], owner: str = "") -> Kept:
        return Kept([tuple(text)])

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        return [self._field(ask.session, ask.look) for ask in asked]

    def _field(self, session: Kept, look: Look) -> Field:
        if look.along:
            return super().look([LookRequest(session, look)])[0]
        tokens, places, views = look.canvas.tokens, range(len(look.canvas)), session.views
        seen = {*places} if look.seen is None else {*look.seen}
        now = tuple(token if i in seen else HOLE for i, token in enumerate(tokens))
        old = {*views}.difference(places if look.fresh is None else look.fresh, look.places)
        rest = [i for i in sorted(seen & old) if look.canvas.status[i] != Status.GIVEN]
        changed = [i for i in rest if (*views[i], *tokens)[i] != tokens[i]]
        old.difference_update(changed[: math.ceil(look.renew * len(rest))])
        views.update(dict.fromkeys(seen.union(look.places) - old, now))
        return Field({i: self._mean(look, [views[j] for j in sorted({*seen, i})], i) for i in look.places})

    def _mean(self, look: Look, views: list[tuple[int, ...]], place: int) -> Law:
        laws = [self._given(look, view, place).p for view in views]
        return Law.of((sum(laws[1:], laws[0]) / len(laws)).tolist())

    def _given(self, look: Look, view: tuple[int, ...], place: int) -> Law:
        weights, joint = [0.0] * self.vocab, self._joint(look.canvas)
        known = {i: x for i, x in enumerate(view[: len(look.canvas)]) if x != HOLE and i != place}
        soft = {i: soft for i, soft in look.soft.items() if i not in known and i != place}
        for text, mass in joint.law.items():
            if all(text[i] == token for i, token in known.items()):
                shown = (1 - weight + weight * law[text[i]] for i, (law, weight) in soft.items())
                weights[text[place]] += mass * math.prod(shown)
        return Law.of(weights)


@dataclass(frozen=True)
class Cached(Case):
    """A case whose target is such a table; its truth is that of the plain one."""

    def models(self, tables: dict[str, Table]) -> dict[str, Causal]:
        plain = tables["target"]
        target = Remembering(plain.vocab, plain.weights)
        target.heads = plain.heads
        return super().models({**tables, "target": target})

    def __str__(self) -> str:
        return f"{super().__str__()}\nlooks see what is not fresh as it was computed last"

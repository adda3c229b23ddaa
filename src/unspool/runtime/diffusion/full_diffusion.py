"""Networks in which everything sees everything: a canvas is computed whole, or as much of it as shall be fresh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...core.asks import Look, Scores, Soft
from ...core.canvas import HOLE, Field, Status
from ...core.errors import BadRequest
from ...core.tree import Tree
from ...models.shape import DiffusionSpec
from ..engine.contracts import LookRequest, ScoreRequest, Session
from ..network.network import Batch, CacheRefresh, Network, Row, Stages, staged, unpaused
from .denoise_batch import mixed, waves


class FullDiffusionModel:
    """A model that fills holes and cannot read from left to right: LLaDA and Dream.

    Without `fresh` a look computes every place. With it, only those and the ones at which laws are read; the others are
    seen as they were computed last in this session, and places never computed before are computed now. With `seen`,
    the rest is computed only where it is asked about, and only it sees itself. With `renew`, the first layer is
    computed for all that is behind the prompt, and the others for what is fresh and for the share whose values in the
    second layer are least like those in the cache.

    A look `along` an order computes a copy of the canvas for each of its places, with those from there on blank, and
    one with trials a copy for each; as many at once as there is room for.
    """

    keeps_keys = True

    def __init__(self, network: Network, filling: DiffusionSpec) -> None:
        self.network, self.filling, self.slots = network, filling, network.slots
        self.vocab, self.context, self.room = network.vocab, network.context, network.slots.room

    def open(self, text: Sequence[int], owner: str = "") -> FullDiffusionSession:
        return FullDiffusionSession(self)

    def forget(self) -> None:
        """Nothing is kept of closed sessions."""

    def score(self, asked: Sequence[ScoreRequest]) -> list[Scores]:
        raise BadRequest("the method reads left to right, but this model only fills holes; choose one that does too")

    def look(self, asked: Sequence[LookRequest]) -> list[Field]:
        fields: dict[int, Field] = {}
        for wave in waves(asked):
            plain = [n for n in wave if asked[n].look.places and not _copies(asked[n].look)]
            fields.update(zip(plain, unpaused(self._seen([asked[n] for n in plain])), strict=True))
            fields.update({n: unpaused(self._copied(asked[n].look)) for n in wave if _copies(asked[n].look)})
        return [fields.get(n) or Field({}) for n in range(len(asked))]

    def looking(self, ask: LookRequest) -> Stages[Field]:
        """Answer one look in stages."""
        if _copies(ask.look):
            return (yield from self._copied(ask.look))
        return (yield from self._seen([ask]))[0] if ask.look.places else Field({})

    def _copied(self, look: Look) -> Stages[Field]:
        """What is read from a copy of the canvas each: the law of each place given those before it, or each trial."""
        copies = look.tried()
        copies += [Look(look.canvas.masked(look.along[n:]), (i,), soft=look.soft) for n, i in enumerate(look.along)]
        lines, rows = list[Tensor](), 0
        while copies:
            most = max(1, (self.room - self.slots.in_use) // len(look.canvas))
            told = yield from self._seen([LookRequest(None, copy) for copy in copies[:most]])
            lines += (field.scores for field in told)
            rows += sum(field.rows for field in told)
            del copies[:most]
        return Field.of(look.places, torch.cat(lines), rows)

    def _seen(self, asked: Sequence[LookRequest]) -> Stages[list[Field]]:
        glances = [ForwardPlan.of(ask, self.filling) for ask in asked]
        done = False
        try:
            for plan in glances:
                plan.taken = self.slots.take(len(plan.missing))
            logits = (yield from self._run(glances)) if glances else []
            done = True
        finally:
            for ask, plan in zip(asked, glances, strict=True):
                if done and isinstance(ask.session, FullDiffusionSession):
                    self.slots.drop(ask.session.turn(plan))
                else:
                    self.slots.drop(plan.taken)
        return [
            Field.of(ask.look.places, lines, len(plan)) for ask, plan, lines in zip(asked, glances, logits, strict=True)
        ]

    def _run(self, glances: list[ForwardPlan]) -> Stages[list[Tensor]]:
        """One forward; for every plan the logits that it reads."""
        tokens, places, slots = list[int](), list[int](), list[int]()
        rows, read, soft, renewals = list[Row](), list[int](), list[tuple[int, Soft]](), list[CacheRefresh]()
        for plan in glances:
            first, own = len(tokens), plan.slots
            number = {place: first + n for n, place in enumerate(plan.computed)}
            rows.append(plan.row(first))
            renewals += [CacheRefresh([number[i] for i in plan.renewed], plan.share)] if plan.renewed else []
            tokens += (plan.look.canvas.tokens[i] for i in plan.computed)
            places += plan.computed
            slots += (own[i] for i in plan.computed)
            read += (number[i] for i in plan.readers)
            soft += ((number[i], plan.look.soft[i]) for i in plan.computed if plan.softens(i))
        read_at, at = torch.tensor(read), (torch.tensor(tokens), torch.tensor(places))
        batch = Batch(*at, slots, rows, read_at, mixed=mixed(soft), renewals=renewals)
        logits = (yield from staged(self.network, batch)).logits
        return list(torch.split(logits, [len(plan.readers) for plan in glances]))


def _copies(look: Look) -> bool:
    """Whether a look takes copies of its canvas; one at no place takes none."""
    return bool(look.along or (look.trials and look.wanted))


@dataclass
class ForwardPlan:
    """What one forward computes of a canvas, and what that sees.

    `known` are the slots of places that were computed before, `missing` those computed now for the first time.
    """

    look: Look
    readers: list[int]
    computed: list[int]
    visible: list[int]
    known: dict[int, int]
    renewed: list[int] = field(default_factory=list)  # of the computed, those of which a share is computed in full
    share: int = 0
    taken: list[int] = field(default_factory=list)

    @staticmethod
    def of(ask: LookRequest, filling: DiffusionSpec) -> ForwardPlan:
        """The plan that answers a look."""
        look, places = ask.look, range(len(ask.look.canvas))
        shifted = filling.reading == "shifted"
        readers = [i - 1 if shifted and i > 0 else i for i in look.places]  # nothing stands before the first
        known = dict(ask.session.slots) if isinstance(ask.session, FullDiffusionSession) else {}
        visible = sorted(places if look.seen is None else look.seen)
        old = set[int]() if look.fresh is None else known.keys() - look.fresh
        computed = {*readers, *(i for i in visible if i not in old)}
        rest = [i for i in visible if i not in computed and look.canvas.status[i] != Status.GIVEN]
        share = math.ceil(look.renew * len(rest))
        renewed = rest if share else []
        return ForwardPlan(look, readers, sorted({*computed, *renewed}), visible, known, renewed, share)

    def __len__(self) -> int:
        return len(self.computed) - len(self.renewed) + self.share

    @property
    def missing(self) -> list[int]:
        """Places without a slot."""
        return [i for i in self.computed if i not in self.known]

    @property
    def slots(self) -> dict[int, int]:
        """The slot of every place that is computed, before or now."""
        return self.known | dict(zip(self.missing, self.taken, strict=True))

    def softens(self, place: int) -> bool:
        """Whether a place shows a mixture."""
        return place in self.look.soft and self.look.canvas.tokens[place] == HOLE

    def row(self, first: int) -> Row:
        """The row of the batch, whose first token has number `first`."""
        new, seen, slots = set(self.computed), set(self.visible), self.slots
        keys = [*(i for i in self.visible if i not in new), *self.computed]
        unseen = torch.tensor([i not in seen for i in keys])
        own = torch.tensor(keys) == torch.tensor(self.computed)[:, None]
        return Row(first, len(self.computed), [slots[i] for i in keys], keys, unseen & ~own)


class FullDiffusionSession:
    """One request's canvas: the slots of the places that were computed."""

    def __init__(self, model: FullDiffusionModel) -> None:
        self._model = model
        self.slots: dict[int, int] = {}

    def turn(self, plan: ForwardPlan) -> list[int]:
        """Remember what was computed; the slots of places that the canvas no longer has."""
        slots, size = plan.slots, len(plan.look.canvas)
        self.slots = {place: slot for place, slot in slots.items() if place < size}
        return [slot for place, slot in slots.items() if place >= size]

    def keep(self, tree: Tree, nodes: Sequence[int], extra: Sequence[int | None]) -> None:
        """Nothing: what stands is on the canvas."""

    def fork(self) -> Session:
        return FullDiffusionSession(self._model)

    def close(self) -> None:
        self._model.slots.drop(list(self.slots.values()))
        self.slots = {}

"""A network of two hashing layers, and what its layouts say by definition: any slip in who sees whom shows."""

from __future__ import annotations

import torch

from unspool.core.asks import Look
from unspool.core.canvas import HOLE
from unspool.models.shape import DiffusionSpec
from unspool.runtime.cache.kv_pool import KVPool
from unspool.runtime.network.network import Batch, NetworkOutputs

VOCAB = 4
FILLINGS = [DiffusionSpec(layout, reading, 3) for layout in ("block", "causal") for reading in ("shifted", "aligned")]
BLOCKS = [DiffusionSpec("blocks", reading, 3, block=size) for reading in ("shifted", "aligned") for size in (1, 2, 3)]
FULL = [DiffusionSpec("full", reading, 3) for reading in ("shifted", "aligned")]


def told(*what: object) -> int:
    """A number that fits into a float and is another for anything else."""
    return hash(what) & 0xFFFFFFFFFFFF


def logits_of(state: int) -> torch.Tensor:
    return torch.tensor([told(state, token) % 9973 / 1000 for token in range(VOCAB)], dtype=torch.float64)


class Deep:
    """Two layers of hashing: what a place tells is made of what the places it sees have seen."""

    layers = 2

    def __init__(self, room: int = 400, context: int | None = None) -> None:
        self.vocab, self.context, self.slots = VOCAB, context, KVPool(room)
        self.forwards, self.computed, self.fails = 0, 0, False

    def forward(self, batch: Batch) -> NetworkOutputs:
        self.forwards += 1
        self.computed += len(batch.tokens)
        places, states = batch.places.tolist(), batch.tokens.tolist()
        if batch.mixed is not None:
            for row, p, weight in zip(*batch.mixed, strict=True):
                states[int(row)] = soft_of(p, float(weight))
        assert len(set(batch.slots)) == len(batch.slots) == len(states)
        for layer in range(self.layers):
            keys = torch.tensor(states, dtype=torch.float64).reshape(1, -1, 1)
            self.slots.write(layer, batch.slots, keys, batch.places.to(torch.float64).reshape(1, -1, 1))
            if self.fails:
                raise RuntimeError("out of memory")
            states = [self._state(layer, batch, row, j) for row in batch.rows for j in range(row.count)]
        assert [p for row in batch.rows for p in row.places[-row.count :]] == places
        read = [states[i] for i in batch.read.tolist()]
        return NetworkOutputs(
            torch.stack([logits_of(x) for x in read]), {k: torch.zeros(len(read), 1) for k in batch.want}
        )

    def _state(self, layer, batch, row, j) -> int:
        keys, places = (x.flatten().tolist() for x in self.slots.read(layer, row.slots))
        assert places == list(row.places)
        own = len(row.slots) - row.count + j
        hidden = [i > own for i in range(len(keys))] if row.hidden_from is None else row.hidden_from[j].tolist()
        assert not hidden[own]
        return told(
            places[own], sorted_sight((p, int(k)) for p, k, h in zip(places, keys, hidden, strict=True) if not h)
        )


def sorted_sight(seen) -> tuple:
    seen = tuple(sorted((int(p), k) for p, k in seen))
    assert len({p for p, _ in seen}) == len(seen), "a place is seen twice"
    return seen


def soft_of(p: torch.Tensor, weight: float) -> int:
    return told("soft", *(round(float(x), 9) for x in p), weight)


def states(tokens: dict[int, int], sees: dict[int, list[int]]) -> dict[int, int]:
    now = dict(tokens)
    for _ in range(Deep.layers):
        now = {i: told(i, sorted_sight((j, now[j]) for j in sees[i])) for i in now}
    return now


def text_law(text: tuple[int, ...]) -> torch.Tensor:
    tokens = dict(enumerate(text))
    return logits_of(states(tokens, {i: list(range(i + 1)) for i in tokens})[len(text) - 1])


def expected(look: Look, filling: DiffusionSpec) -> dict[int, torch.Tensor]:
    """The laws of a look by the definition of the layout, from nothing."""
    if look.trials:
        alone = [expected(Look(each.canvas, each.at, soft=each.soft), filling) for each in look.tried()]
        return dict(zip(look.places, (law for laws in alone for law in laws.values()), strict=True))
    if look.along:
        if filling.reading == "shifted" and filling.reads and simply_next(look):
            return {i: text_law(look.canvas.tokens[:i]) for i in look.along}
        canvas = look.canvas.within(min(look.canvas.window[0], *look.along), look.canvas.window[1])
        return {
            i: expected(Look(canvas.masked(look.along[n:]), (i,), soft=look.soft), filling)[i]
            for n, i in enumerate(look.along)
        }
    tokens, (low, high) = look.canvas.tokens, look.canvas.window
    if filling.layout == "full":
        high = len(tokens)
    high = max(high, max(look.places) + 1)
    holes = [i for i in range(high) if tokens[i] == HOLE]
    if filling.layout == "block":
        low = min([low, *holes, *look.places])
        sees = {i: list(range(i + 1 if i < low else high)) for i in range(high)}
    elif filling.layout == "blocks":
        size = filling.block
        high = min(-(-high // size) * size, len(tokens))
        sees = {i: [j for j in range(high) if j // size <= i // size] for i in range(high)}
    elif filling.layout == "full":
        sees = {i: list(range(high)) for i in range(high)}
    else:
        filled = [i for i in range(high) if i not in holes]
        order = [*filled, *holes]
        sees = {i: order[: order.index(i) + 1] for i in order}
    shown = {i: tokens[i] for i in range(high)}
    shown |= {i: soft_of(s.law.p, s.weight) for i, s in look.soft.items() if tokens[i] == HOLE}
    found = states(shown, sees)
    back = 1 if filling.reading == "shifted" else 0
    return {i: logits_of(found[max(i - back, 0)]) for i in look.places}


def simply_next(look: Look) -> bool:
    tokens, along = look.canvas.tokens, look.along
    known = [i for i in range(look.canvas.window[1]) if tokens[i] != HOLE]
    return list(along) == list(range(along[0], along[-1] + 1)) and known == list(range(along[-1] + 1))


def same(field, look: Look, filling: DiffusionSpec) -> None:
    want = expected(look, filling)
    assert tuple(field) == tuple(look.places) == tuple(want)
    for i in want:
        assert torch.equal(field[i].scores, want[i]), f"place {i} of {look.canvas.tokens}, window {look.canvas.window}"

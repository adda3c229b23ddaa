"""What attention of a round takes on a GPU with fixed shapes: the bits of every token alone first, then microseconds.

    python bench/attention_rounds.py [--json FILE]

Times are of graphs of SmolLM2's 30 layers: attention `alone`, and whole layers with random weights, which come from
memory; of four layers of an 8B shape attention alone. `each token`: every token of a tree reads all of its keys, and
its shares are joined by a launch of their own. `shared`: as the network does it. `free`: with free shapes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from kernels import MODELS, Model, error, made, random_tree
from record import save
from torch import Tensor

from unspool.kernels import attention
from unspool.kernels.kernel_rows import Rows, Visibility
from unspool.kernels.linear import linear
from unspool.kernels.paths import in_order
from unspool.kernels.rope import rope
from unspool.kernels.tiling import Tiling, steady
from unspool.kernels.tune import microseconds

Shape = tuple[int, int, int]  # texts, tokens of each, context
DTYPE, DEVICE, CONTEXT, WORST, REPLAYS = torch.bfloat16, "cuda", 8192, 1e-2, 15
CASES = [(1, tokens, past) for tokens in (8, 16, 32) for past in (64, 300, 1000, 4000)]
CASES += [(texts, 1, past) for texts in (1, 8, 32) for past in (64, 300, 1000, 4000)]
CASES += [(1, 64, 300), (8, 8, 300), (8, 32, 300), (128, 1, 300), (128, 1, 1000)]
LARGE = [(1, 1, 1000), (1, 8, 1000), (1, 32, 1000), (8, 1, 1000), (32, 1, 300), (32, 1, 1000)]


def shared(model: Model, rows: Rows) -> Tiling:
    tiles, group = rows.number * rows.tokens * model.kv_heads, model.heads // model.kv_heads
    return steady(rows.table.shape[1], CONTEXT, group, model.width, tiles, rows.tokens)


def each_token(model: Model, rows: Rows) -> Tiling:
    return replace(shared(model, rows), prefixed=False)


def free(model: Model, rows: Rows) -> None:
    return None


WAYS: dict[str, Callable[[Model, Rows], Tiling | None]] = {"each token": each_token, "shared": shared, "free": free}


@dataclass
class Case:
    """Rows of one batch, those with their keys in order, and how many slots they need."""

    loose: Rows
    rows: Rows
    slots: int

    def given(self, name: str) -> Rows:
        return self.loose if name == "free" else self.rows


def ints(x: Tensor) -> Tensor:
    return x.to(torch.int32).contiguous().to(DEVICE)


def case(number: int, tokens: int, past: int) -> Case:
    """Texts of `past` tokens in a bucket, each followed by a token or by a random tree of some."""
    generator = torch.Generator().manual_seed(tokens)
    room = max(1024, 1 << (past + tokens - 1).bit_length())
    bits, depth = random_tree(tokens, generator)
    slots = torch.randperm(number * (room + tokens), generator=generator).view(number, -1)
    places = past + depth
    key_places = torch.zeros(1, 32 * bits.shape[1], dtype=torch.int64)
    key_places[0, :tokens] = places
    tree = {
        "sight": Visibility.BITS,
        "clear": ints(torch.full((number,), past)),
        "sees": ints(bits.repeat(number, 1)),
        "key_places": ints(key_places.repeat(number, 1)),
    }
    rows = Rows(
        table=ints(slots[:, :room]),
        past=ints(torch.full((number,), past)),
        count=ints(torch.full((number,), tokens)),
        slots=ints(slots[:, room:].flatten()),
        places=ints(places.repeat(number)),
        **(tree if tokens > 1 else {}),
    )
    return Case(rows, in_order(rows), number * (room + tokens))


def alone(model: Model, rows: Rows, queries: Tensor, pool: Tensor) -> Tensor:
    """Every token by itself, as a plain step has it, its shares joined by a launch of their own."""
    found = []
    for n in range(rows.number * rows.tokens):
        row, token = n // rows.tokens, n % rows.tokens
        table, place, past = rows.table[row : row + 1].clone(), int(rows.places[n]), int(rows.past[row])
        if rows.paths is not None:
            table[0, past:place] = rows.paths[row, token, : place - past]
        own = rows.slots[n : n + 1], rows.places[n : n + 1]
        one = Rows(table, ints(torch.tensor([place])), ints(torch.tensor([1])), *own)
        given = queries[n : n + 1], *pool, one, model.width**-0.5, None
        found.append(attention.attention(*given, each_token(model, one)))
    return torch.cat(found)


def check(model: Model, shape: Shape) -> None:
    """End with what is wrong, if a way is."""
    torch.manual_seed(sum(shape))
    there = case(*shape)
    pool, queries = made(2, model.kv_heads, there.slots, model.width), made(_tokens(shape), model.heads, model.width)
    wanted, theirs = alone(model, there.rows, queries, pool), None
    for name, way in WAYS.items():
        rows, scale = there.given(name), model.width**-0.5
        ours = attention.attention(queries, *pool, rows, scale, None, way(model, rows))
        theirs = attention.reference(queries, *pool, there.loose, scale) if theirs is None else theirs
        if error(ours, theirs) > WORST:
            raise SystemExit(f"{model.name} {name} {shape}: off by {error(ours, theirs):.4f}")
        if name != "free" and not torch.equal(ours, wanted):
            raise SystemExit(f"{model.name} {name} {shape}: other bits than each token alone")


def _tokens(shape: Shape) -> int:
    return shape[0] * shape[1]


def time_alone(model: Model, shape: Shape) -> Iterator[tuple[str, float]]:
    """Microseconds of attention of one layer."""
    there, layers = case(*shape), 30 if model is MODELS[0] else 4
    pools = [made(2, model.kv_heads, there.slots, model.width) for _ in range(layers)]
    queries = made(_tokens(shape), model.heads, model.width)
    for name, way in WAYS.items():
        rows = there.given(name)
        given = rows, model.width**-0.5, None, way(model, rows)
        launches = [partial(attention.attention, queries, *pool, *given) for pool in pools]
        yield name, microseconds(launches, REPLAYS)


class Layers:
    """The layers of a model with random weights."""

    def __init__(self, model: Model) -> None:
        self.model, dim = model, model.dim
        together = (model.heads + 2 * model.kv_heads) * model.width
        sizes = (together, dim), (dim, model.heads * model.width), (2 * model.hidden, dim), (dim, model.hidden)
        self.weights = [[made(*size, scale=size[1] ** -0.5) for size in sizes] for _ in range(model.layers)]
        self.norm = torch.ones(dim, dtype=DTYPE, device=DEVICE)
        angles = torch.arange(CONTEXT)[:, None] * 10000 ** (-torch.arange(0, model.width, 2) / model.width)
        self.turns = angles.cos().to(DEVICE), angles.sin().to(DEVICE)

    def forward(self, x: Tensor, pools: list[Tensor], rows: Rows, cut: Tiling | None, found: list[Tensor]) -> None:
        normed = {"norm": self.norm, "eps": 1e-5, "steady": True}
        for (qkv, out, gate_up, down), pool in zip(self.weights, pools, strict=True):
            queries = rope(linear(x, qkv, **normed), None, 1e-5, *self.turns, rows.places, rows.slots, *pool, 4)
            seen = attention.attention(queries, *pool, rows, self.model.width**-0.5, None, cut)
            x = linear(seen, out, residual=x, steady=True)
            x = linear(linear(x, gate_up, activation="silu", **normed), down, residual=x, steady=True)
        found.append(x)

    def time(self, shape: Shape) -> Iterator[tuple[str, float]]:
        """Microseconds of one whole layer; what leaves the last one has the same bits, in a graph too."""
        there, model = case(*shape), self.model
        pools = [made(2, model.kv_heads, there.slots, model.width) for _ in range(model.layers)]
        x, first = made(_tokens(shape), model.dim), None
        for name, way in WAYS.items():
            found: list[Tensor] = []
            rows = there.given(name)
            spent = microseconds([partial(self.forward, x, pools, rows, way(model, rows), found)], REPLAYS)
            if first is None:
                first = found[-1].clone()
            elif name != "free" and not torch.equal(first, found[-1]):
                raise SystemExit(f"{name} {shape}: other bits after {model.layers} layers in a graph")
            yield name, spent / model.layers


def table(title: str, cases: list[Shape], timed: Callable[[Shape], Iterator[tuple[str, float]]]) -> dict[str, Any]:
    """Microseconds by case and way."""
    found: dict[str, Any] = {}
    for shape in cases:
        named = "{}x{}@{}".format(*shape)
        found[named] = {name: round(spent, 2) for name, spent in timed(shape)}
        print(f"{title:10} {named:>10}", ", ".join(f"{name} {spent:6.2f}" for name, spent in found[named].items()))
        torch.cuda.empty_cache()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    small, large = MODELS
    for model, cases in ((small, CASES), (large, LARGE)):
        for shape in cases:
            check(model, shape)
    print("every token has the bits that it has alone", flush=True)
    found = {
        "in a layer": table("in a layer", [shape for shape in CASES if shape[2] in (300, 1000)], Layers(small).time),
        "alone": table("alone", CASES, partial(time_alone, small)),
        "8B alone": table("8B alone", LARGE, partial(time_alone, large)),
    }
    if args.json:
        save(args.json, found)


if __name__ == "__main__":
    main()

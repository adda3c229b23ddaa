"""Find the best cut of every product and the best tiling of attention on this GPU, then time whole steps with them.

    python bench/tuning.py [--json FILE]

Prints lines for the table in unspool/kernels/tile.py, for attention the best tilings beside the rule's own, and whole
steps by how their launches overlap. Processes side by side compile all candidates first: Triton keeps them on disk.
"""

from __future__ import annotations

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import kernels
import torch
from kernels import DTYPE, EPS, MODELS, Model, Product, made
from record import save
from stack import Stack, inputs_of

from unspool.kernels import attention, linear, norm, tune
from unspool.kernels import draft_chain as chain
from unspool.kernels import tile as cut
from unspool.kernels.tile import Tile
from unspool.kernels.tiling import Tiling

COMPILERS = 15
TOKENS = (8, 16, 32, 64)
BATCHES = (
    (1, 1, 1024),
    (1, 8, 1024),
    (1, 64, 1024),
    (8, 1, 1024),
    (32, 1, 1024),
    (1, 1, 8192),
    (1, 16, 1024),
    (1, 64, 8192),
)
STEPS = (*BATCHES[:7], (128, 1, 256))
MODES = {"apart": (False, 4), "chained": (True, 4), "far": (True, 16)}

Launch = Callable[[], object]
RULE = attention.tiling


@dataclass(frozen=True)
class Case:
    """A kernel on given sizes, the ways to run it (the rule's own first), and one launch per buffer for a way."""

    label: str
    ways: Sequence[Any]
    launches: Callable[[Callable[[int], int]], Callable[[Any], list[Launch]]]
    key: tuple[Any, ...]

    @property
    def compiled(self) -> list[Any]:
        """Ways that differ in more than their number of splits, where that is no matter of compiling."""
        if isinstance(self.ways[0], Tile):
            return [way for way in self.ways if way != cut.LIBRARY]
        return list(dict.fromkeys(replace(way, splits=min(way.splits, 2)) for way in self.ways))


def of_product(product: Product, n: int) -> Case:
    gated = product.activation is not None

    def launches(copies: Callable[[int], int]) -> Callable[[Any], list[Launch]]:
        x, beside = made(n, product.depth), kernels.given(product, n)
        weights = [kernels.weight_of(product) for _ in range(copies(product.bytes))]
        return lambda way: [partial(linear.linear, x, weight, cut=way, **beside) for weight in weights]

    key = (product.width, product.depth, cut.rows_for(n), gated)
    return Case(f"{key} n={n}", cut.cuts(product.width, product.depth, n, gated), launches, key)


def of_attention(model: Model, number: int, tokens: int, context: int) -> Case:
    group = model.heads // model.kv_heads
    room = context + tokens
    rule = RULE(number, tokens, model.kv_heads, group, model.width, room, DTYPE)

    def launches(copies: Callable[[int], int]) -> Callable[[Any], list[Launch]]:
        rows, slots = kernels.rows_of(number, tokens, context)
        size = 2 * model.kv_heads * slots * model.width * DTYPE.itemsize
        pools = [made(2, model.kv_heads, slots, model.width) for _ in range(copies(size))]
        queries, scale = made(number * tokens, model.heads, model.width), model.width**-0.5
        return lambda way: [partial(attention.attention, queries, *pool, rows, scale, None, way) for pool in pools]

    shapes = [(rule.heads, keys, 4, stages) for keys in (32, 64, 128) for stages in (2, 3)]
    if tokens * group > 64:
        shapes += [(64, 128, 8, 2), (128, 64, 8, 2), (128, 64, 8, 3), (128, 128, 8, 2), (32, 64, 4, 2)]
    elif tokens > 1:
        shapes += [(16, 64, 4, 2), (16, 128, 4, 2), (64, 64, 4, 2)]
    else:
        shapes += [(16, 64, 2, 2), (16, 128, 4, 4), (16, 128, 8, 2)]
    ways = [rule]
    for heads, keys, warps, stages in shapes:
        blocks = -(-room // keys)
        programs = number * -(-tokens * group // heads) * model.kv_heads
        splits = {*(max(1, round(waves * 132 / programs)) for waves in (1, 2, 4)), blocks, -(-blocks // 2), rule.splits}
        most = min(64, blocks, max(1, 8 * 132 // programs))
        ways += [Tiling(heads, keys, s, warps, stages) for s in sorted({min(s, most) for s in splits})]
    key = (number, tokens, model.kv_heads, group, model.width, room)
    label = f"{model.name} {number}x{tokens} @ {context}"
    return Case(label, list(dict.fromkeys(ways)), launches, key)


def cases() -> Iterator[Case]:
    for model in MODELS:
        for batch in BATCHES:
            yield of_attention(model, *batch)
        for product in kernels.products(model):
            for n in TOKENS:
                yield of_product(product, n)


def works(launch: Launch) -> bool:
    """Whether it compiles and fits; a way that does not is no candidate."""
    try:
        launch()
    except tune.TritonError:
        return False
    return True


def use(found: dict[tuple[Any, ...], Any]) -> None:
    """Cut and tile as was found."""
    cut.TUNED.update({key: way for key, way in found.items() if isinstance(way, Tile)})
    tilings = {key: way for key, way in found.items() if isinstance(way, Tiling)}
    attention.tiling = lambda *sizes: tilings.get(sizes[:-1]) or RULE(*sizes)


def overlap(mode: str) -> None:
    chain.ON, linear.AHEAD = MODES[mode]


def compile_share(share: int, found: dict[tuple[Any, ...], Any] | None) -> None:
    """Run every COMPILERS-th way once; or one layer of every such step as found."""
    turn = 0
    if found is None:
        overlap("apart")
        for case in cases():
            for way in case.compiled:
                turn += 1
                if turn % COMPILERS == share:
                    works(case.launches(lambda size: 1)(way)[0])
        return
    use(found)
    for model in MODELS:
        for batch in STEPS:
            for mode in MODES:
                turn += 1
                if turn % COMPILERS == share:
                    overlap(mode)
                    inputs = inputs_of(model, *batch)
                    Stack(model, 1, inputs.slots).step(inputs)


def compile_all(found: dict[tuple[Any, ...], Any] | None = None) -> None:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder) / "found"
        at.write_bytes(pickle.dumps(found))
        jobs = [
            subprocess.Popen([sys.executable, __file__, "--compile", str(share), str(at)], env=env)
            for share in range(COMPILERS)
        ]
        failed = sum(job.wait() != 0 for job in jobs)
    if failed:
        print(f"{failed} of {COMPILERS} compiling processes failed", flush=True)


def pairs() -> Iterator[tuple[str, float]]:
    """A product, its residual and the norm behind it, in each order of launches there is."""
    for model in MODELS:
        for product in kernels.products(model):
            if product.adds:
                yield from of_pair(model, product, 64)
                yield from of_pair(model, product, 8)


def of_pair(model: Model, product: Product, n: int) -> Iterator[tuple[str, float]]:
    x, stream, factor = made(n, product.depth), made(n, product.width), made(product.width)
    weights = [kernels.weight_of(product) for _ in range(tune.copies(product.bytes))]
    into = stream.clone()
    ways: dict[str, Callable[[torch.Tensor], object]] = {
        "ours + x; rms": lambda w: norm.rms(linear.linear(x, w, residual=stream), factor, EPS),
        "ours; add_rms": lambda w: norm.add_rms(stream, linear.linear(x, w), factor, EPS),
        "torch; add_rms": lambda w: norm.add_rms(stream, torch.mm(x, w.t()), factor, EPS),
        "addmm; rms": lambda w: norm.rms(torch.addmm(stream, x, w.t()), factor, EPS),
        "addmm in place; rms": lambda w: norm.rms(torch.addmm(into, x, w.t(), out=into), factor, EPS),
    }
    for name, way in ways.items():
        yield f"{model.name} {product.name} n={n} {name}", tune.microseconds([partial(way, w) for w in weights])


def steps(found: dict[tuple[Any, ...], Any]) -> Iterator[dict[str, Any]]:
    speed = kernels.bandwidth()
    print(f"\nwhole steps, ms{'':13}{''.join(f'{mode:>9}' for mode in MODES)}    floor, weights and keys", flush=True)
    use(found)
    for model in MODELS:
        stack = Stack(model, model.layers, 33 * 1024)
        for batch in STEPS:
            number, tokens, context = batch
            inputs = inputs_of(model, *batch)
            times, verdicts = {}, []
            for mode in MODES:
                overlap(mode)
                verdicts.append(stack.step(inputs).packed)
                times[mode] = tune.microseconds([partial(stack.step, inputs)], replays=15) / 1000
            if not all(torch.equal(verdict, verdicts[0]) for verdict in verdicts):
                print(f"    WRONG {model.name} {batch}: overlapping launches change the result", flush=True)
            held = 2 * model.layers * model.kv_heads * model.width * DTYPE.itemsize * number * (context + tokens)
            floor = (stack.bytes + held) / speed / 1000
            cells = "".join(f"{value:9.3f}" for value in (*times.values(), floor))
            print(f"{model.name:14}{f'{number}x{tokens} @ {context}':14}{cells}", flush=True)
            yield {"model": model.name, "batch": batch, "ms": times, "floor_ms": floor}
        del stack
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compile", nargs=2, metavar=("SHARE", "FOUND"), help=argparse.SUPPRESS)
    parser.add_argument("--steps", action="store_true", help="whole steps only, as the tables now have them")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.compile is not None:
        share, at = args.compile
        compile_share(int(share), pickle.loads(Path(at).read_bytes()))
        return
    begun, times, found = time.perf_counter(), {}, {}

    def passed(what: str) -> None:
        print(f"# {time.perf_counter() - begun:.0f} s: {what}", flush=True)

    if not args.steps:
        overlap("apart")
        compile_all()
        passed("compiled")
        for case in cases():
            times[case.label] = timed = tried(case)
            found[case.key] = min(timed, key=lambda pair: pair[0])[1]
        passed("tuned")
    compile_all(found)
    passed("steps compiled")
    lines = list(steps(found))
    overlap("apart")
    if not args.steps:
        for name, value in pairs():
            print(f"{name:50}{value:8.2f}", flush=True)
    passed("done")
    if args.json:
        short = {label: [(round(t, 3), repr(way)) for t, way in timed] for label, timed in times.items()}
        save(args.json, {"best_first_us": short, "steps": lines})


def tried(case: Case) -> list[tuple[float, Any]]:
    launches = case.launches(tune.copies)
    runs = [way for way in case.ways if works(launches(way)[0])]
    first = launches(runs[0])[0]()
    for way in runs[1:]:
        off = kernels.error(launches(way)[0](), first)
        if off > kernels.WORST:
            print(f"    WRONG {case.label} {way}: {off:.2e}", flush=True)
    tune.microseconds(launches(runs[0]), 3)  # fresh memory is slow at first
    timed = [(tune.microseconds(launches(way), 5), way) for way in runs]
    rule = next((f"{t:.2f}" for t, way in timed if way == case.ways[0]), "does not run")
    library = next((f"; torch {t:.2f}" for t, way in timed if way == cut.LIBRARY), "")
    timed.sort(key=lambda pair: pair[0])
    print(f"    {case.label}: {timed[0][1]},  # {timed[0][0]:.2f} μs; rule {rule}{library}", flush=True)
    for t, way in timed[1:4]:
        print(f"    #     {t:.2f} {way}")
    return timed


if __name__ == "__main__":
    main()

"""What a speculative round takes by its width, on a GPU: products of few tokens in several cuts, steps, whole rounds.

    python bench/rounds.py [--only products,steps,kernels] [--data FOLDER] [--json FILE]

`products`: microseconds of each product of SmolLM2's layers for 1 to 32 tokens, by programs of so many tokens and
pieces of weights and by tiles, the best first; weights come from memory. `steps`: milliseconds of a plain step and of
rounds of 8 to 64 tokens between CUDA events, and what rounds of each width bring on prompts of Spec-Bench, alone,
drafting always; with the cuts as they are, and with each of FORMS in their place. `kernels`: where a round's time goes.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernels import MODELS, products
from leap import Fixed, Told, buckets, by_kernel, replayed, speculation, written
from record import save
from spec import DATA, chats

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.kernels import tile
from unspool.kernels.tile import PIECE, Tile
from unspool.kernels.tune import tune
from unspool.runtime.cuda.packing import Kind
from unspool.runtime.cuda.speculation_gate import Way

Text = tuple[int, ...]
Form = Callable[[int, int, int, bool], Tile | None]
TOKENS = (1, 8, 16, 32)
WIDTHS = (8, 16, 32, 64)
PROGRAMS = ((8, 64, 4), (8, 128, 8), (8, 128, 4), (16, 64, 4), (16, 64, 8), (16, 128, 8), (16, 128, 4))
"""Tokens, pieces of weights and warps of a program."""
OWN = "as it is"


def at_once(tokens: int, lines: int, warps: int, most: int, norms: bool = True) -> Form:
    """Up to `most` tokens by such programs; with their norm in them, or by itself."""

    def cut(width: int, depth: int, n: int, gated: bool) -> Tile | None:
        lanes, rows = _up(-(-depth // PIECE)), min(_up(n), tokens)
        if n > most:
            return None
        block = max(1, lines // (lanes * (2 if gated else 1)))
        return Tile(rows, block, PIECE, warps=warps, norms=norms, apart=True, at_once=True)

    return cut


FORMS: dict[str, Form | None] = {
    OWN: None,
    "tiles from 9 tokens on": at_once(8, 64, 4, 8),
    "8 tokens, 128 pieces": at_once(8, 128, 8, 32),
    "16 tokens, 128 pieces": at_once(16, 128, 8, 32),
    "8 tokens, 64 pieces, norms alone": at_once(8, 64, 4, 32, norms=False),
    "8 tokens, 128 pieces, norms alone": at_once(8, 128, 8, 32, norms=False),
    "16 tokens, 128 pieces, norms alone": at_once(16, 128, 8, 32, norms=False),
}


def _up(x: int) -> int:
    return 1 << (x - 1).bit_length()


def tried(depth: int, n: int, gated: bool, normed: bool) -> Iterator[Tile]:
    """The cuts of a product that are worth trying."""
    lanes = _up(-(-depth // PIECE))
    for tokens, lines, warps in PROGRAMS:
        block = lines // (lanes * (2 if gated else 1))
        if tokens <= max(n, 8) and block:
            for norms in (True, False) if normed else (True,):
                yield Tile(min(tokens, n), block, PIECE, warps=warps, norms=norms, apart=True, at_once=True)
    yield Tile(64, 16, PIECE, stages=4 if gated else 5, apart=True)


def said(cut: Tile, gated: bool, depth: int) -> str:
    """A cut in a few words."""
    if not cut.at_once:
        return "tiles"
    lines = cut.block * _up(-(-depth // PIECE)) * (2 if gated else 1)
    return f"{cut.rows}x{lines}w{cut.warps}" + "+rms" * (not cut.norms)


def of_products(names: list[str]) -> dict[str, Any]:
    """Microseconds of every product by its cut."""
    found: dict[str, Any] = {}
    for product in products(MODELS[0])[:4]:
        if product.name not in names:
            continue
        gated, parts = product.activation is not None, {"normed": product.normed, "adds": product.adds}
        for n in TOKENS:
            cuts = list(tried(product.depth, n, gated, product.normed))
            times = tune(product.width, product.depth, n, **parts, activation=product.activation, tried=cuts)
            own = {said(cut, gated, product.depth): round(spent, 2) for spent, cut in times}
            found[f"{product.name}, {n} tokens"] = own
            print(f"{product.name:8} {n:3}:", ", ".join(f"{k} {v}" for k, v in own.items()), flush=True)
    return found


def of_steps(args: argparse.Namespace, texts: list[Text], form: str) -> dict[str, Any]:
    """A plain step and rounds by width: milliseconds, tokens a round, speed over plain, texts that are plain's."""
    own, chosen = tile._at_once, FORMS[form]
    tile._at_once = chosen or own
    gc.collect()  # the model before
    lm = load(args.model, dtype="bf16", device="cuda", kv_cache_tokens=50_000)
    speculation(lm).gate = Fixed(Way.RECALL)
    found: dict[str, Any] = {}
    try:
        plain = written(lm, texts, "plain", args.tokens, 0.0, 1)
        found["plain"] = {"ms": step_of(lm, Kind.WRITE, 1), "tokens_per_second": plain.per_second}
        print(f"-- {form}: plain {found['plain']['ms']:.3f} ms, {plain.per_second:,.0f} tokens/s", flush=True)
        for width in args.widths if form == OWN else args.widths[:3]:
            told = written(lm, texts, f"on_device:nodes={width - 1}", args.tokens, 0.0, 1)
            found[str(width)] = row = round_of(lm, width, told, plain)
            print(f"{width:3} tokens:", ", ".join(f"{k} {v:.3f}" for k, v in row.items()), flush=True)
        if "kernels" in args.only and form == OWN:
            for size in ((Kind.WRITE, 1), *((Kind.SPECULATE, width) for width in args.widths[1:3])):
                print("\n".join(kernels(lm, *size)), flush=True)
    finally:
        tile._at_once = own
    return found


def round_of(lm: LM, width: int, told: Told, plain: Told) -> dict[str, float]:
    same = sum(a == b for a, b in zip(told.texts, plain.texts, strict=True))
    return {
        "ms": step_of(lm, Kind.SPECULATE, width),
        "wall": 1000 * told.seconds / told.forwards,
        "tokens": told.per_forward,
        "speed": told.per_second / plain.per_second,
        "same": same,
    }


def step_of(lm: LM, kind: Kind, width: int) -> float:
    """Milliseconds of one replay of the graph of this width for the shortest texts."""
    sizes = [size for size in buckets(lm) if size.kind is kind and size.tokens == width and size.rows == 1]
    return replayed(buckets(lm)[min(sizes, key=lambda size: size.length)])


def kernels(lm: LM, kind: Kind, width: int) -> list[str]:
    """Where the time of a step goes, by kernel."""
    size = min((s for s in buckets(lm) if s.kind is kind and s.tokens == width), key=lambda size: size.length)
    return [f"kernels of a {kind.name.lower()} step of {width}:", *by_kernel(buckets(lm)[size])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default="products,steps,kernels", metavar="PARTS")
    parser.add_argument("--products", nargs="+", default=["qkv", "out", "gate_up", "down"])
    parser.add_argument("--forms", nargs="+", choices=list(FORMS), default=list(FORMS))
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS))
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    found: dict[str, Any] = {"model": args.model}
    if "products" in args.only:
        found["products"] = of_products(args.products)
    if "steps" in args.only:
        texts = chats(load(args.model, device="cpu"), args.data, args.limit)
        found["steps"] = {}
        for form in args.forms:
            found["steps"][form] = of_steps(args, texts, form)
            if args.json:
                save(args.json, found)
    if args.json:
        save(args.json, found)


if __name__ == "__main__":
    main()

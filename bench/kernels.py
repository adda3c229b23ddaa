"""Check every kernel on a GPU against its reference, then time it against cuBLAS and PyTorch's own attention.

    python bench/kernels.py [--json FILE]

Times are microseconds per call: medians over replays of a captured graph that goes round buffers larger than the L2
cache. `floor` is the bytes that must be read over the bandwidth of a copy measured in the same run.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from record import save
from torch import Tensor

from unspool.kernels import attention, gate, linear, norm, rope, tune
from unspool.kernels.kernel_rows import Rows, Visibility

DTYPE, DEVICE, EPS = torch.bfloat16, "cuda", 1e-5
WORST = 1e-2  # relative error of a whole result that bfloat16 accounts for
TOKENS, CONTEXTS = (1, 8, 64), (1024, 8192)
BATCHES = (*((1, n) for n in TOKENS), (32, 1))  # rows × tokens


@dataclass(frozen=True)
class Model:
    """The sizes of a network."""

    name: str
    dim: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    vocab: int
    layers: int


@dataclass(frozen=True)
class Product:
    """One product of a layer with what is fused into it."""

    name: str
    width: int
    depth: int
    normed: bool = False
    adds: bool = False
    activation: str | None = None

    @property
    def bytes(self) -> int:
        return self.width * self.depth * DTYPE.itemsize * (2 if self.activation else 1)


MODELS = (
    Model("SmolLM2-135M", 576, 9, 3, 64, 1536, 49152, 30),
    Model("Llama-3-8B", 4096, 32, 8, 128, 14336, 128256, 32),
)


def products(model: Model) -> list[Product]:
    together = (model.heads + 2 * model.kv_heads) * model.width
    return [
        Product("qkv", together, model.dim, normed=True),
        Product("out", model.dim, model.heads * model.width, adds=True),
        Product("gate_up", model.hidden, model.dim, normed=True, activation="silu"),
        Product("down", model.dim, model.hidden, adds=True),
        Product("head", model.vocab, model.dim, normed=True),
    ]


def made(*shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, device=DEVICE, dtype=torch.float32) * scale).to(DTYPE)


def given(product: Product, n: int) -> dict[str, Any]:
    return {
        "norm": made(product.depth) if product.normed else None,
        "eps": EPS,
        "residual": made(n, product.width) if product.adds else None,
        "activation": product.activation,
    }


def weight_of(product: Product) -> Tensor:
    return made(product.width * (2 if product.activation else 1), product.depth, scale=product.depth**-0.5)


def random_tree(tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random tree: what each token sees of it as bits [tokens, words], and how deep it stands."""
    below = [-1] + [int(torch.randint(0, j, (1,), generator=generator)) for j in range(1, tokens)]
    seen = torch.zeros(tokens, 32 * ((tokens + 31) // 32), dtype=torch.int64)
    depth: list[int] = []
    for j, above in enumerate(below):
        if above >= 0:
            seen[j] = seen[above]
        seen[j, j] = 1
        depth.append(0 if above < 0 else depth[above] + 1)
    bits = (seen.view(tokens, -1, 32) << torch.arange(32)).sum(-1)
    return torch.where(bits >= 2**31, bits - 2**32, bits), torch.tensor(depth)


def rows_of(number: int, tokens: int, context: int) -> tuple[Rows, int]:
    """Rows of `context` older keys each and a random tree of `tokens`, and how many slots they need."""
    generator = torch.Generator().manual_seed(tokens)
    bits, depth = random_tree(tokens, generator)
    room = context + tokens
    slots = torch.arange(number * room).view(number, room)

    def on(x: Tensor) -> Tensor:
        return x.to(torch.int32).contiguous().to(DEVICE)

    rows = Rows(
        table=on(slots[:, :context]),
        past=on(torch.full((number,), context)),
        count=on(torch.full((number,), tokens)),
        slots=on(slots[:, context:].flatten()),
        places=on((context + depth).repeat(number)),
        sight=Visibility.CAUSAL if tokens == 1 else Visibility.BITS,
        clear=on(torch.full((number,), context)),
        sees=on(bits.repeat(number, 1)),
    )
    return rows, number * room + 1


# ---- correctness


def error(ours: Tensor, theirs: Tensor) -> float:
    ours, theirs = ours.double(), theirs.double()
    off = float((ours - theirs).norm() / theirs.norm())
    return off if off == off else float("inf")


def check(model: Model) -> Iterator[tuple[str, float]]:
    for n in TOKENS:
        for product in products(model):
            x, weight, beside = made(n, product.depth), weight_of(product), given(product, n)
            out = torch.full((n, product.width), float("nan"), dtype=DTYPE, device=DEVICE)
            linear.linear(x, weight, out=out, **beside)
            yield f"{product.name} n={n}", error(out, linear.reference(x, weight, **beside))
        yield from check_small(model, n)
        for number in (1, 3):
            rows, slots = rows_of(number, n, 1000)
            keys, values = (made(model.kv_heads, slots, model.width) for _ in range(2))
            keys[:, -1] = values[:, -1] = float("nan")
            queries = made(number * n, model.heads, model.width)
            for window in (None, 300):
                if window is not None:
                    rows = windowed(rows)
                here = queries, keys, values, rows, model.width**-0.5, window
                ours, theirs = attention.attention(*here), attention.reference(*here)
                yield f"attention {number}x{n} window={window}", error(ours, theirs)


def windowed(rows: Rows) -> Rows:
    if rows.sees is None:
        return rows
    new = rows.places.view(rows.number, -1)
    empty = torch.zeros(rows.number, 32 * rows.sees.shape[1] - new.shape[1], dtype=torch.int32, device=DEVICE)
    return replace(rows, key_places=torch.cat((new, empty), 1).contiguous())


def check_small(model: Model, n: int) -> Iterator[tuple[str, float]]:
    x, added, weight, after = made(n, model.dim), made(n, model.dim), made(model.dim), made(model.dim)
    yield f"rms n={n}", error(norm.rms(x, weight, EPS), norm.rms_reference(x, weight, EPS))
    ours, theirs = (f(x, added, weight, EPS, after) for f in (norm.add_rms, norm.add_rms_reference))
    yield f"add_rms n={n}", max(error(one, other) for one, other in zip(ours, theirs, strict=True))
    both = made(n, 2 * model.hidden)
    yield f"gate n={n}", error(gate.gate(both, "silu"), gate.reference(both, "silu"))
    results = []
    kept = torch.random.get_rng_state()
    for turn in (rope.rope, rope.reference):
        torch.random.set_rng_state(kept)
        pools = [torch.zeros(model.kv_heads, n + 1, model.width, dtype=DTYPE, device=DEVICE) for _ in range(2)]
        results.append([turn(*rope_inputs(model, n), *pools), *pools])
    yield f"rope n={n}", max(error(one, other) for one, other in zip(*results, strict=True))


def rope_inputs(model: Model, n: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(n)
    together = (model.heads + 2 * model.kv_heads) * model.width
    qkv = torch.randn(n, together, generator=generator).to(DTYPE).to(DEVICE)
    angles = torch.arange(8192 + 64)[:, None] * 10000 ** (-torch.arange(0, model.width, 2) / model.width)
    places = torch.randint(0, 8192, (n,), generator=generator, dtype=torch.int32).to(DEVICE)
    slots = torch.randperm(n, generator=generator).to(torch.int32).to(DEVICE)
    return qkv, None, EPS, angles.cos().to(DEVICE), angles.sin().to(DEVICE), places, slots


# ---- times


def bandwidth() -> float:
    """Bytes per microsecond of a copy by a kernel, read and written; what a graph makes of `copy_` is slower."""
    source = torch.empty(2**28, dtype=torch.float32, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.itemsize / tune.microseconds([partial(torch.neg, source, out=target)])


def rotated(make: Callable[[], Tensor], size: int) -> list[Tensor]:
    return [make() for _ in range(tune.copies(size))]


def time_products(model: Model, speed: float) -> Iterator[dict[str, Any]]:
    for product in products(model):
        weights = rotated(partial(weight_of, product), product.bytes)
        for n in TOKENS:
            x, beside = made(n, product.depth), given(product, n)
            ours = tune.microseconds([partial(linear.linear, x, weight, **beside) for weight in weights])
            theirs = tune.microseconds([partial(F.linear, x, weight) for weight in weights])
            yield line(model, product.name, f"n={n}", ours, theirs, product.bytes / speed)
        del weights
        torch.cuda.empty_cache()


def time_attention(model: Model, speed: float) -> Iterator[dict[str, Any]]:
    for context in CONTEXTS:
        for number, tokens in BATCHES:
            rows, slots = rows_of(number, tokens, context)
            size = 2 * model.kv_heads * number * (context + tokens) * model.width * DTYPE.itemsize
            pools = rotated(partial(made, 2, model.kv_heads, slots, model.width), size)
            queries = made(number * tokens, model.heads, model.width)
            scale = model.width**-0.5
            ours = tune.microseconds([partial(attention.attention, queries, *pool, rows, scale) for pool in pools])
            asked = queries.view(number, tokens, model.heads, model.width).transpose(1, 2)
            mask = torch.zeros(tokens, context + tokens, dtype=DTYPE, device=DEVICE) if tokens > 1 else None
            plain = [pool[:, :, :-1].view(2, model.kv_heads, number, -1, model.width).transpose(1, 2) for pool in pools]
            theirs = tune.microseconds(
                [partial(F.scaled_dot_product_attention, asked, *p, attn_mask=mask, enable_gqa=True) for p in plain]
            )
            yield line(model, "attention", f"{number}x{tokens} @ {context}", ours, theirs, size / speed)
            del pools, plain
            torch.cuda.empty_cache()


def time_small(model: Model) -> Iterator[dict[str, Any]]:
    for n in TOKENS:
        x, weight, both = made(n, model.dim), made(model.dim), made(n, 2 * model.hidden)
        pools = [made(model.kv_heads, n + 1, model.width) for _ in range(2)]
        inputs = rope_inputs(model, n)
        for name, ours, theirs in (
            ("rms", partial(norm.rms, x, weight, EPS), partial(F.rms_norm, x, weight.shape, weight, EPS)),
            ("add_rms", partial(norm.add_rms, x, x, weight, EPS), None),
            ("gate", partial(gate.gate, both, "silu"), partial(gate.reference, both, "silu")),
            ("rope", partial(rope.rope, *inputs, *pools), None),
        ):
            t = tune.microseconds([theirs] * 50) if theirs else None
            yield line(model, name, f"n={n}", tune.microseconds([ours] * 50), t, None)


def time_steps(model: Model, speed: float) -> Iterator[dict[str, Any]]:
    """A whole forward with its verdict; the weights of all layers are themselves larger than the cache."""
    from stack import Stack, inputs_of  # here: it imports this file

    stack = Stack(model, model.layers, 1024 + 64 * 64)
    for number, tokens in (*BATCHES, (64, 1)):
        context = 1024 if number == 1 else 16
        inputs = inputs_of(model, number, tokens, context)
        ours = tune.microseconds([partial(stack.step, inputs)])
        yield line(model, "step", f"{number}x{tokens} @ {context}", ours, None, stack.bytes / speed)


def line(
    model: Model, kernel: str, case: str, ours: float, theirs: float | None, floor: float | None
) -> dict[str, Any]:
    cells = [f"{value:>9.2f}" if value is not None else f"{'':9}" for value in (ours, theirs, floor)]
    print(f"{model.name:13}{kernel:10}{case:14}{''.join(cells)}", flush=True)
    return {"model": model.name, "kernel": kernel, "case": case, "ours": ours, "torch": theirs, "floor": floor}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    torch.manual_seed(0)
    errors = {model.name: dict(check(model)) for model in MODELS}
    worst = max(((off, f"{name} {case}") for name, found in errors.items() for case, off in found.items()))
    print(f"largest relative error {worst[0]:.2e} ({worst[1]})", flush=True)
    bad = [f"{name} {case}: {off:.2e}" for name, found in errors.items() for case, off in found.items() if off > WORST]
    if bad:
        raise SystemExit("wrong results:\n" + "\n".join(bad))
    speed = bandwidth()
    print(f"{'':37}{'ours':>9}{'torch':>9}{'floor':>9}   (μs; copy {speed / 1e6:.2f} TB/s)")
    lines = []
    for model in MODELS:
        lines += [
            *time_products(model, speed),
            *time_attention(model, speed),
            *time_small(model),
            *time_steps(model, speed),
        ]
    if args.json:
        save(args.json, {"errors": errors, "copy_tb_s": speed / 1e6, "median_us": lines})


if __name__ == "__main__":
    main()

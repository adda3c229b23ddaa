"""The time to the first token of a long prompt on the GPU, against what its arithmetic takes.

Part of bench/gpu.py, which runs all of it. The floor is one forward over all tokens of the prompt by PyTorch's own
kernels, captured as one graph: cuBLAS for every product, flash attention, and the head for the last token alone. What
is above it is ours: text to tokens, scheduling, chunks, kernels, the pick, tokens to text.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.models.shape import Shape

Row = tuple[str, str, str]  # what, measured, bar
TRIES = 9
BAR = 1.5


def first(lm: LM, texts: Sequence[Sequence[int]], free: LM | None = None, size: int = 4096) -> Any:
    """Milliseconds to the first token after a prompt of `size` tokens, as such or as text; `free` has free shapes."""
    words = [token for text in texts for token in text]
    prompt = tuple((words * (1 + size // len(words)))[:size])
    text = lm.vocabulary.decode(prompt)
    least = floor(lm.model.network.shape, size)
    found: dict[str, Any] = {"tokens": size, "floor_ms": least, "encode_ms": median(lambda: lm.encode(text))}
    found["ms"] = median(lambda: begun(lm, prompt), lm.model.forget)
    found["ms_of_text"] = median(lambda: begun(lm, text), lm.model.forget)
    said = (
        f"{found['ms']:.2f} ms, {found['ms'] / least:.2f}× its floor of {least:.2f}; of text {found['ms_of_text']:.2f}"
    )
    rows = [(f"first token of a prompt of {size:,} tokens", said, f"≤ {BAR}×")]
    if free is not None:
        found["ms_free"] = median(lambda: begun(free, prompt), free.model.forget)
        said = f"{found['ms_free']:.2f} ms, {found['ms_free'] / least:.2f}×"
        rows.append((f"first token of a prompt of {size:,} tokens, free shapes", said, f"≤ {BAR}×"))
    return found, rows


def begun(lm: LM, prompt: Any) -> None:
    """Read a prompt and write a token."""
    lm.generate(prompt, Settings(max_tokens=1), raw=True)


def median(run: Callable[[], object], forget: Callable[[], object] = bool) -> float:
    """The median time of a call in milliseconds, after two that capture what is new; before each, caches `forget`."""
    times = []
    for _ in range(TRIES + 2):
        forget()
        began = time.perf_counter()
        run()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times[2:])


def floor(shape: Shape, size: int) -> float:
    """Milliseconds of a forward over so many tokens by PyTorch's kernels in one graph, with random weights."""
    dim, width, heads, kv_heads = shape.dim, shape.head_dim, shape.heads, shape.kv_heads
    sizes = ((heads + 2 * kv_heads) * width, dim), (dim, heads * width), (2 * shape.hidden, dim), (dim, shape.hidden)

    def made(*of: int) -> torch.Tensor:
        return torch.randn(of, device="cuda", dtype=torch.bfloat16) * of[-1] ** -0.5

    layers = [[made(*of) for of in sizes] for _ in range(shape.layers)]
    inputs, head = made(size, dim), made(shape.vocab, dim)

    @torch.no_grad()
    def forward() -> torch.Tensor:
        x = inputs
        for qkv, out, gate_up, down in layers:
            parts = F.linear(F.rms_norm(x, (dim,)), qkv).view(1, size, -1, width).transpose(1, 2)
            q, k, v = parts.split((heads, kv_heads, kv_heads), 1)
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + F.linear(seen.transpose(1, 2).reshape(size, -1), out)
            g, u = F.linear(F.rms_norm(x, (dim,)), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(g) * u, down)
        return F.linear(F.rms_norm(x[-1:], (dim,)), head)

    forward()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward()

    def run() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return median(run)

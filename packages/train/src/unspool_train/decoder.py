"""Decoding many texts at once with a static cache: enough to measure adapted weights, apart from unspool's own runtime.

Every query sees the cache slots below its own bound, and slots are positions, so one forward serves prefill, plain
decoding, and blocks. A block's forward holds the block before it too, read causally, so that storing a finished block
costs no forward of its own (arXiv 2509.04185); computing it again while the next one is open changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .training_network import MATRICES, NORMS, Frozen, normed, turned

SPAN = 128  # a forward reads the cache up to a multiple of this


@dataclass(frozen=True)
class Texts:
    """What was written after each prompt, the forwards each text took, and the blocks that had to be stored."""

    tokens: list[list[int]]
    forwards: Tensor
    blocks: Tensor


class Decoder:
    """A model's forward over `count` texts of at most `room` tokens."""

    def __init__(self, frozen: Frozen, count: int, room: int, mask_id: int, end: int, graphs: bool) -> None:
        shape, device = frozen.shape, frozen.embedding.device
        self.frozen, self.count, self.room = frozen, count, -(-room // SPAN) * SPAN
        self.mask_id, self.end, self.graphs = mask_id, end, graphs and device.type == "cuda"
        self.dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self.device = device
        self.embedding, self.head = frozen.embedding.to(self.dtype), frozen.head.to(self.dtype)
        size = (shape.layers, count, shape.kv_heads, self.room, shape.head_dim)
        self.keys = torch.zeros(size, dtype=self.dtype, device=device)
        self.values = torch.zeros(size, dtype=self.dtype, device=device)
        self.lines = torch.arange(count, device=device)[:, None]
        self.biases: Sequence[Tensor | None] = [bias.to(self.dtype) for bias in frozen.biases] or [None] * shape.layers
        self.weights: dict[str, Tensor] = {}
        self.captured: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]] = {}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights; those of a first load are overwritten in place, since captured graphs read them there."""
        merged = {name: weights[name].float() for name in ("norm", "mask")}
        for index in range(self.frozen.shape.layers):
            own = {name: weights[f"layers.{index}.{name}"] for name in (*MATRICES, *NORMS)}
            merged[f"{index}.qkv"] = torch.cat([own["q"], own["k"], own["v"]])
            merged[f"{index}.gate_up"] = torch.cat([own["gate"], own["up"]])
            for name in ("o", "down", "norm1", "norm2"):
                merged[f"{index}.{name}"] = own[name]
        for name, value in merged.items():
            narrow = value.to(self.dtype if value.dim() == 2 else torch.float32)
            if name in self.weights:
                self.weights[name].copy_(narrow)
            else:
                self.weights[name] = narrow.clone()

    def states(self, tokens: Tensor, places: Tensor, bounds: Tensor, span: int) -> Tensor:
        """Store tokens [count, n] at their places and return their normed last states; each sees slots < bound."""
        shape, own = self.frozen.shape, self.weights
        groups, n = shape.heads // shape.kv_heads, tokens.shape[1]
        cos, sin = (part[:, :, None] for part in self.frozen.rotation(places))
        seen = (torch.arange(span, device=self.device) < bounds[..., None])[:, None]
        # Query heads that share keys count as more queries of one head, so that no key is copied.
        seen = seen.repeat(1, 1, groups, 1)
        x = torch.where((tokens == self.mask_id)[..., None], own["mask"].to(self.dtype), self.embedding[tokens])
        for index in range(shape.layers):
            keys, values = self.keys[index], self.values[index]
            line = normed(x, own[f"{index}.norm1"], shape.norm_eps)
            split = functional.linear(line, own[f"{index}.qkv"], self.biases[index]).view(
                self.count, n, -1, shape.head_dim
            )
            q = turned(split[:, :, : shape.heads], cos, sin)
            keys[self.lines, :, places] = turned(split[:, :, shape.heads : shape.heads + shape.kv_heads], cos, sin)
            values[self.lines, :, places] = split[:, :, shape.heads + shape.kv_heads :]
            q = q.view(self.count, n, shape.kv_heads, groups, -1).permute(0, 2, 3, 1, 4)
            q = q.reshape(self.count, shape.kv_heads, groups * n, -1)
            mixed = functional.scaled_dot_product_attention(q, keys[:, :, :span], values[:, :, :span], attn_mask=seen)
            mixed = mixed.view(self.count, shape.kv_heads, groups, n, -1).permute(0, 3, 1, 2, 4)
            x = x + functional.linear(mixed.reshape(self.count, n, -1), own[f"{index}.o"])
            line = normed(x, own[f"{index}.norm2"], shape.norm_eps)
            gate, up = functional.linear(line, own[f"{index}.gate_up"]).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, own[f"{index}.down"])
        return normed(x, own["norm"], shape.norm_eps)

    def forward(self, tokens: Tensor, places: Tensor, bounds: Tensor, longest: int) -> Tensor:
        """`states` through a captured graph where there is one; `longest` is the largest bound, known on the host."""
        span = min(-(-longest // SPAN) * SPAN, self.room)
        if not self.graphs:
            return self.states(tokens, places, bounds, span)
        key = (tokens.shape[1], span)
        if key not in self.captured:
            self.captured[key] = self._capture(tokens, places, bounds, span)
        graph, inputs, out = self.captured[key]
        for held, given in zip(inputs, (tokens, places, bounds), strict=True):
            held.copy_(given)
        graph.replay()
        return out

    def _capture(
        self, tokens: Tensor, places: Tensor, bounds: Tensor, span: int
    ) -> tuple[torch.cuda.CUDAGraph, tuple[Tensor, ...], Tensor]:
        # The warm-up computes the very call that follows, so that what it stores is right.
        inputs = (tokens.clone(), places.clone(), bounds.clone())
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self.states(*inputs, span)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = self.states(*inputs, span)
        return graph, inputs, out

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of states; the mask itself, if there is one, is never written."""
        found = functional.linear(states, self.head).float()
        if self.mask_id >= 0:
            found[..., self.mask_id] = float("-inf")
        return found

    def window(self, tokens: Tensor, start: Tensor, size: int, longest: int) -> Tensor:
        """The logits of `size` masks behind the first `start` tokens of each text, whose last `size` are read again."""
        around = torch.arange(-size, size, device=self.device)
        where = start[:, None] + around
        held = torch.where(around < 0, tokens.gather(1, where), self.mask_id)
        bounds = torch.where(around < 0, where + 1, start[:, None] + size)
        return self.logits(self.forward(held, where, bounds, longest)[:, size - 1 : -1])

    def prefill(self, prompts: Sequence[Sequence[int]], chunk: int = 64) -> tuple[Tensor, Tensor]:
        """Store the prompts; return (tokens [count, room], lengths), whose rest is the end token."""
        tokens = torch.full((self.count, self.room), self.end, dtype=torch.long)
        for line, prompt in enumerate(prompts):
            tokens[line, : len(prompt)] = torch.tensor(list(prompt))
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        tokens = tokens.to(self.device)
        longest = max(map(len, prompts))
        for start in range(0, longest, chunk):
            # Past the end of a prompt this stores nonsense, which is overwritten before anything sees it.
            some = torch.arange(start, min(start + chunk, self.room), device=self.device).expand(self.count, -1)
            self.states(tokens[:, some[0]], some, some + 1, -(-(start + chunk) // SPAN) * SPAN)
        return tokens, lengths


@torch.no_grad()
def greedy(decoder: Decoder, prompts: Sequence[Sequence[int]], most: int) -> Texts:
    """The likeliest token after token."""
    tokens, lengths = decoder.prefill(prompts)
    return _continued(decoder, tokens, lengths, most, None, None)


@torch.no_grad()
def sampled(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    most: int,
    heat: Sequence[float],
    chance: torch.Generator,
    first: Sequence[int] | None = None,
) -> Texts:
    """Plain sampling, each text at its own temperature; at 0 greedily, as all behind the `first` tokens of each."""
    tokens, lengths = decoder.prefill(prompts)
    warm = torch.tensor(heat, device=decoder.device)[:, None]
    until = torch.tensor([most] * len(prompts) if first is None else first, device=decoder.device)[:, None]
    return _continued(decoder, tokens, lengths, most, (warm, until), chance)


def _continued(
    decoder: Decoder,
    tokens: Tensor,
    lengths: Tensor,
    most: int,
    heat: tuple[Tensor, Tensor] | None,
    chance: torch.Generator | None,
) -> Texts:
    begin = lengths.clone()
    open_ = torch.ones(decoder.count, dtype=torch.bool, device=decoder.device)
    longest = int(lengths.max())
    steps = torch.zeros_like(lengths)
    for step in range(most):
        at = (lengths - 1)[:, None]
        states = decoder.forward(tokens.gather(1, at), at, at + 1, longest + step)
        logits = decoder.logits(states[:, 0])
        if heat is not None:
            noise = torch.empty_like(logits).exponential_(generator=chance).log_()
            warm, until = heat
            logits = logits - warm * (step < until) * noise  # Gumbel's trick: the largest is a draw
        chosen = torch.where(open_, logits.argmax(-1), decoder.end)
        tokens.scatter_(1, lengths[:, None], chosen[:, None])
        steps += open_
        lengths = lengths + open_
        open_ &= chosen != decoder.end
        if step % 16 == 15 and not bool(open_.any()):
            break
    return Texts(cut(decoder, tokens, begin, lengths), steps, torch.zeros_like(steps))


def cut(decoder: Decoder, tokens: Tensor, begin: Tensor, finish: Tensor) -> list[list[int]]:
    """The text of each row from its beginning to its finish, or to its first end token, which counts."""
    rows, starts, ends = tokens.tolist(), begin.tolist(), finish.tolist()
    found = []
    for row, start, stop in zip(rows, starts, ends, strict=True):
        text = row[start:stop]
        found.append(text[: text.index(decoder.end) + 1] if decoder.end in text else text)
    return found


@torch.no_grad()
def filled(decoder: Decoder, prompts: Sequence[Sequence[int]], size: int, threshold: float, most: int) -> Texts:
    """Blocks of `size`: each forward fixes every token whose probability exceeds the threshold, and the surest one.

    The first token of a block is read from the clean text alone, so the first look fixes it as if it were the surest.
    A threshold of 1 or more fixes one token per forward. Texts go on at their own pace; a text is finished when its
    first end token has nothing open on its left.
    """
    if min(map(len, prompts)) < size:
        raise ValueError(f"a prompt is shorter than the block of {size}; give longer prompts")
    tokens, begin = decoder.prefill(prompts)
    device, mask, end = decoder.device, decoder.mask_id, decoder.end
    place = torch.arange(size, device=device)
    start, limit = begin.clone(), begin + most // size * size
    around = torch.arange(-size, size, device=device)
    tokens.scatter_(1, start[:, None] + place, mask)
    forwards, blocks = torch.zeros_like(start), torch.zeros_like(start)
    open_ = torch.ones(decoder.count, dtype=torch.bool, device=device)
    longest = int(begin.max()) + size
    while True:
        where = start[:, None] + around
        bounds = torch.where(around < 0, where + 1, start[:, None] + size)
        states = decoder.forward(tokens.gather(1, where), where, bounds, longest)
        logits = decoder.logits(states[:, size - 1 : -1])  # read one to the left; the first from the clean block
        best, chosen = logits.max(-1)
        sure = (best - logits.logsumexp(-1)).exp()
        block = tokens.gather(1, where[:, size:])
        fixed = block.eq(end).int().cumsum(1) > 0  # behind a fixed end token nothing is worth a forward
        holes = block.eq(mask) & ~fixed & open_[:, None]
        # Nothing in the block can change what is read for its first token, so that one goes first.
        score = torch.where(holes, sure, -1.0) + (holes & (place == 0))
        take = holes & ((sure > threshold) | (place == score.argmax(1, keepdim=True)))
        block = torch.where(take, chosen, block)
        tokens.scatter_(1, where[:, size:], block)
        forwards += open_
        ended = block.eq(end).int().cumsum(1) > 0
        full = ~(block.eq(mask) & ~ended).any(1)
        last = ended.any(1) | (start + size >= limit)
        blocks += open_ & full & ~last
        finished = open_ & full & last
        onward = open_ & full & ~last
        open_ = open_ & ~finished
        start = start + size * onward
        fresh = tokens.gather(1, start[:, None] + place)
        tokens.scatter_(1, start[:, None] + place, torch.where(onward[:, None], mask, fresh))
        # One look at the host per forward: how far the longest text is, and whether any is open.
        longest, busy = torch.stack([start.max() + size, open_.any().long()]).tolist()
        if not busy:
            break
    texts = cut(decoder, tokens, begin, start + size)
    return Texts([[t for t in text if t != mask] for text in texts], forwards, blocks)


@torch.no_grad()
def led(decoder: Decoder, prompts: Sequence[Sequence[int]], size: int, threshold: float, most: int) -> Texts:
    """A window of `size` masks behind what stands: each forward fixes its first token and the sure ones right after it.

    What was fixed leaves the window at once and is read as text by the next forward. A threshold above 1 fixes one
    token per forward, which is plain decoding.
    """
    if min(map(len, prompts)) < size:
        raise ValueError(f"a prompt is shorter than the window of {size}; give longer prompts")
    tokens, begin = decoder.prefill(prompts)
    end, place = decoder.end, torch.arange(size, device=decoder.device)
    start, limit = begin.clone(), begin + most
    forwards = torch.zeros_like(start)
    longest, busy = int(begin.max()) + size, 1
    while busy:
        open_ = start < limit
        logits = decoder.window(tokens, start, size, longest)
        best, chosen = logits.max(-1)
        sure = (best - logits.logsumexp(-1)).exp() >= threshold
        ended = chosen.eq(end).int().cumsum(1) - chosen.eq(end).int() > 0  # behind the first end token nothing stands
        run = ((sure | (place == 0)) & ~ended).int().cumprod(1).sum(1)
        run = torch.minimum(run, limit - start) * open_
        take = place < run[:, None]
        tokens.scatter_(1, start[:, None] + place, torch.where(take, chosen, end))
        forwards += open_
        start = start + run
        start = torch.where((take & chosen.eq(end)).any(1), limit, start)
        longest, busy = torch.stack([start.max() + size, (start < limit).any().long()]).tolist()
    return Texts(cut(decoder, tokens, begin, limit), forwards, torch.zeros_like(forwards))


@torch.no_grad()
def judged(decoder: Decoder, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[Tensor]:
    """The log-probability of every token of the texts under the loaded weights, read causally."""
    whole = [[*prompt, *text] for prompt, text in zip(prompts, texts, strict=True)]
    tokens = torch.full((decoder.count, max(map(len, whole)) + 1), decoder.end, dtype=torch.long)
    for line, text in enumerate(whole):
        tokens[line, : len(text)] = torch.tensor(text)
    tokens = tokens.to(decoder.device)
    parts, chunk = [], 32
    for start in range(0, tokens.shape[1] - 1, chunk):
        some = torch.arange(start, min(start + chunk, tokens.shape[1] - 1), device=decoder.device)
        some = some.expand(decoder.count, -1)
        span = min(-(-(start + chunk) // SPAN) * SPAN, decoder.room)
        logits = decoder.logits(decoder.states(tokens[:, some[0]], some, some + 1, span))
        following = tokens[:, some[0] + 1, None]
        parts.append((logits.gather(2, following)[..., 0] - logits.logsumexp(-1)).cpu())
    found = torch.cat(parts, 1)
    return [
        found[line, len(prompt) - 1 : len(prompt) + len(text) - 1]
        for line, (prompt, text) in enumerate(zip(prompts, texts, strict=True))
    ]

"""The model while it is trained: a plain Llama forward over packed rows, each token seeing two stretches of its row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from unspool.core.errors import BadModel
from unspool.models.address import path
from unspool.models.rope_scaling import rope_frequencies
from unspool.models.shape import Shape
from unspool.models.weights import Checkpoint, open_checkpoint

from .noisy_rows import NoisyBatch

MATRICES: Mapping[str, str] = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
NORMS: Mapping[str, str] = {"norm1": "input_layernorm", "norm2": "post_attention_layernorm"}
READING = ("q", "k", "v")  # matrices that may have biases, which are never trained
TILE = 128  # flex attention skips tiles of this many tokens
Weights = Mapping[str, Tensor]
Spans = tuple[Tensor, ...]  # past, past_end, own, own_end of NoisyBatch
Laid = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Frozen:
    """What training does not change: the shape, the embedding and the head, and the base's other weights."""

    shape: Shape
    embedding: Tensor
    head: Tensor
    frequencies: Tensor
    base: Weights
    biases: Sequence[Tensor] = ()  # of queries, keys and values side by side, a layer each, where a model has them

    @classmethod
    def open(cls, model: str, device: str) -> Frozen:
        """Read a model by its path or its catalogue name."""
        source = Path(model).expanduser()
        if not source.exists():
            source = path(model)
        return cls.load(open_checkpoint(source), device)

    @classmethod
    def load(cls, checkpoint: Checkpoint, device: str) -> Frozen:
        """Read a model in float32; only layers of Llama and Qwen2 can be trained here."""
        shape = checkpoint.shape
        extras = (shape.out_bias, shape.mlp_bias, shape.qk_norm, shape.post_norms)
        if (
            any(extras)
            or shape.oddities
            or any(shape.windows)
            or shape.activation != "silu"
            or shape.embed_scale != 1.0
        ):
            raise BadModel(
                f"{checkpoint.title}: is a {shape.family} model with windows, extra norms or biases behind its "
                "products, which cannot be trained here; give a plain Llama model or a Qwen2, such as smollm2."
            )
        embedding = checkpoint.tensor("model.embed_tokens.weight").to(device)
        head = embedding if shape.tied else checkpoint.tensor("lm_head.weight").to(device)
        base = {name: checkpoint.tensor(stored).to(device) for name, stored in names(shape)}
        frequencies, scale = rope_frequencies(shape.rope, factors=checkpoint.rope_factors)
        if scale != 1.0:
            raise BadModel(f"{checkpoint.title}: stretches its rotary positions, which cannot be trained here.")
        found = range(shape.layers if shape.qkv_bias else 0)
        biases = [torch.cat([checkpoint.tensor(name) for name in _bias_names(index)]).to(device) for index in found]
        return cls(shape, embedding, head, frequencies.to(device), base, biases)

    def laid_out(self, weights: Weights, index: int, dtype: torch.dtype) -> Laid:
        """The weights of a layer as `layer` takes them, matrices that read the same side by side."""
        own = {name: weights[f"layers.{index}.{name}"] for name in (*MATRICES, *NORMS)}
        qkv, gate_up = (torch.cat([own[name] for name in names]).to(dtype) for names in (READING, ("gate", "up")))
        bias = self.biases[index].to(dtype) if self.biases else None
        return own["norm1"], qkv, bias, own["o"].to(dtype), own["norm2"], gate_up, own["down"].to(dtype)

    def rotation(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin of the places [..., head_dim/2] in float32."""
        angle = places.float()[..., None] * self.frequencies
        return angle.cos(), angle.sin()


def names(shape: Shape) -> Iterator[tuple[str, str]]:
    """Yield (our name, the checkpoint's name) of every weight that is trained."""
    for layer in range(shape.layers):
        for ours, theirs in (*MATRICES.items(), *NORMS.items()):
            yield f"layers.{layer}.{ours}", f"model.layers.{layer}.{theirs}.weight"
    yield "norm", "model.norm.weight"


def _bias_names(layer: int) -> Iterator[str]:
    for name in READING:
        yield f"model.layers.{layer}.{MATRICES[name]}.bias"


def is_matrix(name: str) -> bool:
    """Tell a matrix, whose change is stored as factors, from a norm or the mask's embedding."""
    return name.rsplit(".", 1)[-1] in MATRICES


def normed(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / rms(x) · weight, computed in float32."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * weight).to(x.dtype)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, halves split, computed in float32."""
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)


def layer(
    x: Tensor,
    norm1: Tensor,
    qkv: Tensor,
    bias: Tensor | None,
    out: Tensor,
    norm2: Tensor,
    gate_up: Tensor,
    down: Tensor,
    cos: Tensor,
    sin: Tensor,
    mask: Tensor | BlockMask | None,
    heads: int,
    kv_heads: int,
    eps: float,
) -> Tensor:
    """One layer over rows [rows, width, dim]; without a mask every token sees those before it."""
    rows, width, _ = x.shape
    split = functional.linear(normed(x, norm1, eps), qkv, bias).view(rows, width, heads + 2 * kv_heads, -1)
    split = split.transpose(1, 2)
    q = turned(split[:, :heads], cos, sin)
    k = turned(split[:, heads : heads + kv_heads], cos, sin)
    v = split[:, heads + kv_heads :]
    shared = heads != kv_heads
    if mask is None:
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shared)
    elif isinstance(mask, Tensor):
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=shared)
    else:
        mixed = flex_attention(q, k, v, block_mask=mask, enable_gqa=shared)
    x = x + functional.linear(mixed.transpose(1, 2).reshape(rows, width, -1), out)
    gate, up = functional.linear(normed(x, norm2, eps), gate_up).chunk(2, -1)
    return x + functional.linear(functional.silu(gate) * up, down)


class TrainingNetwork:
    """The forward over packed rows: dense masks anywhere; compiled, with flex attention, on a GPU."""

    def __init__(self, frozen: Frozen, dtype: torch.dtype, rows: int, width: int, mask_id: int, compiled: bool) -> None:
        self.frozen, self.dtype, self.mask_id, self.compiled = frozen, dtype, mask_id, compiled
        self.embedding, self.head = frozen.embedding.to(dtype), frozen.head.to(dtype)
        self.layer: Callable[..., Tensor] = torch.compile(layer, dynamic=False) if compiled else layer
        self.last: Callable[..., Tensor] = torch.compile(normed, dynamic=False) if compiled else normed
        # Attention reads these buffers, so that one compiled graph serves every batch.
        past, past_end, own, own_end = self.spans = tuple(
            torch.zeros(rows, width, dtype=torch.int32, device=frozen.embedding.device) for _ in range(4)
        )

        def sees(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            first = (key >= past[row, query]) & (key < past_end[row, query])
            return first | ((key >= own[row, query]) & (key < own_end[row, query]))

        self.sees = sees

    def hidden(self, weights: Weights, batch: NoisyBatch) -> Tensor:
        """Return the normed last states [rows · width, dim] of a batch under these weights."""
        shape, device, dtype = self.frozen.shape, self.embedding.device, self.dtype
        tokens = torch.from_numpy(batch.tokens).to(device).long()
        places = torch.from_numpy(batch.places).to(device)
        for span, of in zip(self.spans, (batch.past, batch.past_end, batch.own, batch.own_end), strict=True):
            span.copy_(torch.from_numpy(of))
        mask = self._mask()
        cos, sin = (part[:, None] for part in self.frozen.rotation(places))
        x = torch.where((tokens == self.mask_id)[..., None], weights["mask"].to(dtype), self.embedding[tokens])
        for index in range(shape.layers):
            laid = self.frozen.laid_out(weights, index, dtype)
            x = self.layer(x, *laid, cos, sin, mask, shape.heads, shape.kv_heads, shape.norm_eps)
        return self.last(x, weights["norm"], shape.norm_eps).view(-1, shape.dim)

    def _mask(self) -> Tensor | BlockMask:
        if not self.compiled:
            return visible(self.spans)[:, None]
        some, every = tiles(self.spans, TILE)
        return BlockMask.from_kv_blocks(*_listed(some & ~every), *_listed(every), BLOCK_SIZE=TILE, mask_mod=self.sees)


def visible(spans: Spans) -> Tensor:
    """The dense mask [rows, width, width] of four spans: True where a token (rows) sees a key (columns)."""
    key = torch.arange(spans[0].shape[-1], device=spans[0].device)
    past, past_end, own, own_end = (span[..., None] for span in spans)
    return ((key >= past) & (key < past_end)) | ((key >= own) & (key < own_end))


def tiles(spans: Spans, size: int) -> tuple[Tensor, Tensor]:
    """Which tiles [rows, width/size, width/size] are seen in part at least, and which by all their tokens in full."""
    rows, width = spans[0].shape
    count = width // size
    start = torch.arange(count, device=spans[0].device, dtype=torch.int32) * size
    past, past_end, own, own_end = (span[..., None] for span in spans)
    some = _touches(past, past_end, start, size) | _touches(own, own_end, start, size)
    full = ((past <= start) & (past_end >= start + size)) | ((own <= start) & (own_end >= start + size))
    return some.view(rows, count, size, count).any(2), full.view(rows, count, size, count).all(2)


def _touches(begin: Tensor, end: Tensor, start: Tensor, size: int) -> Tensor:
    return (begin < start + size) & (end > start) & (end > begin)


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """A boolean [rows, queries, keys] as flex attention wants it: how many keys, and which, the chosen first."""
    count = chosen.sum(-1, dtype=torch.int32)[:, None].contiguous()
    index = chosen.int().argsort(dim=-1, descending=True, stable=True).to(torch.int32)[:, None].contiguous()
    return count, index

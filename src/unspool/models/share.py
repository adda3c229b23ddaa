"""A share of a model: the heads, hidden numbers and rows of the vocabulary that one of several ranks holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..core.errors import BadRequest
from .layer_shape import AttentionSpec, ExpertSpec, LayerSpec
from .mixer_shape import LatentSpec, RecurrentSpec
from .shape import Shape
from .vocabulary import Vocabulary
from .weights import Checkpoint

Mixer = AttentionSpec | LatentSpec | RecurrentSpec | None
SUMMED = ("o_proj", "down_proj")  # cut by what comes into them: each rank's product is one summand of the whole
THINKING = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True)
class RankShare:
    """Rank `rank` of `ranks`, and what it holds of a model of a given shape.

    Key-value heads are dealt out with their query heads, as evenly as they come: 3 on 2 ranks are 2 and 1. Where there
    are more ranks than key-value heads, several ranks hold the same one, each with its part of the query heads. DTensor
    would cut every dimension into chunks of one size, and a head in the middle. Of every expert a rank has some hidden
    numbers, so that all ranks choose the same experts and none waits for another's.
    """

    rank: int
    ranks: int

    def part(self, whole: int) -> range:
        """Which of `whole` things in a row it has: as many as the others, or one more if it comes first."""
        return range(-(-self.rank * whole // self.ranks), -(-(self.rank + 1) * whole // self.ranks))

    def queries(self, heads: Shape | AttentionSpec) -> range:
        """Its query heads."""
        if heads.kv_heads < self.ranks:
            return self.part(heads.heads)
        keys, group = self.part(heads.kv_heads), heads.heads // heads.kv_heads
        return range(keys.start * group, keys.stop * group)

    def keys(self, heads: Shape | AttentionSpec) -> range:
        """Its key-value heads."""
        if heads.kv_heads >= self.ranks:
            return self.part(heads.kv_heads)
        head = self.queries(heads).start * heads.kv_heads // heads.heads
        return range(head, head + 1)

    def tokens(self, vocab: int) -> range:
        """The tokens whose logits it computes, in chunks of one size but for the last, as DTensor joins them."""
        size = -(-vocab // self.ranks)
        return range(min(self.rank * size, vocab), min((self.rank + 1) * size, vocab))

    def shape(self, whole: Shape) -> Shape:
        """The shape of its layers; refuses a model that cannot be shared so."""
        refuse(whole, self.ranks)
        if self.ranks == 1:
            return whole
        hidden, mixture = len(self.part(whole.hidden)), self._mixture(whole.mixture)
        if whole.each:
            return replace(whole, hidden=hidden, mixture=mixture, each=tuple(map(self._layer, whole.each)))
        heads, kv_heads = len(self.queries(whole)), len(self.keys(whole))
        return replace(whole, heads=heads, kv_heads=kv_heads, hidden=hidden, mixture=mixture)

    def _layer(self, spec: LayerSpec) -> LayerSpec:
        hidden = len(self.part(spec.hidden))
        return replace(spec, mixer=self._mixer(spec.mixer), hidden=hidden, mixture=self._mixture(spec.mixture))

    def _mixer(self, spec: Mixer) -> Mixer:
        if not divided(spec):
            return spec
        if isinstance(spec, LatentSpec):
            return replace(spec, heads=len(self.part(spec.heads)))
        assert isinstance(spec, AttentionSpec)
        return replace(spec, heads=len(self.queries(spec)), kv_heads=len(self.keys(spec)))

    def _mixture(self, spec: ExpertSpec | None) -> ExpertSpec | None:
        if spec is None:
            return None
        return replace(spec, hidden=len(self.part(spec.hidden)), shared=len(self.part(spec.shared)))


def divided(spec: Mixer) -> bool:
    """Whether ranks share the heads of a mixer; else each of them has all of it.

    A norm over all heads needs all of them, and so do states of recurrent layers here.
    """
    return isinstance(spec, LatentSpec) or (isinstance(spec, AttentionSpec) and spec.qk_norm != "all")


def refuse(shape: Shape, ranks: int) -> None:
    """Say why a model cannot be shared among so many ranks, if it cannot."""
    if ranks < 1:
        raise BadRequest(f"ranks={ranks}; expected a number of processes from 1 on.")
    for spec in {layer.mixer for layer in shape.stack}:
        if divided(spec):
            assert isinstance(spec, AttentionSpec | LatentSpec)
            _refuse_heads(ranks, spec.heads, spec.heads if isinstance(spec, LatentSpec) else spec.kv_heads)
    widths = {layer.hidden for layer in shape.stack if layer.hidden}
    widths |= {n for e in {layer.mixture for layer in shape.stack} if e is not None for n in (e.hidden, e.shared) if n}
    least = min(widths, default=ranks)
    if ranks > min(least, shape.vocab):
        raise BadRequest(f"{ranks} ranks cannot share {least} hidden numbers and {shape.vocab} tokens.")


def _refuse_heads(ranks: int, heads: int, kv_heads: int) -> None:
    if ranks > kv_heads and (ranks % kv_heads or heads % ranks):
        more = [str(n) for n in range(2 * kv_heads, heads + 1, kv_heads) if heads % n == 0]
        raise BadRequest(
            f"{ranks} ranks cannot share {heads} query heads on {kv_heads} key-value heads; "
            f"choose at most {kv_heads}{', or ' + ' or '.join(more) if more else ''}."
        )


class RankCheckpoint:
    """The share of a rank as a checkpoint of its own: tensors are read one at a time, and only the part is kept.

    Embedding, norms and routers are whole. A bias behind a sum over the ranks is the first rank's alone, zero on the
    others.
    """

    def __init__(self, whole: Checkpoint, share: RankShare) -> None:
        self.whole, self.share = whole, share
        self.shape = share.shape(whole.shape)

    @property
    def title(self) -> str:
        return self.whole.title

    @property
    def bytes(self) -> int:
        return self.whole.bytes

    @property
    def rope_factors(self) -> Tensor | None:
        return self.whole.rope_factors

    def vocabulary(self) -> Vocabulary:
        return self.whole.vocabulary()

    def names(self) -> frozenset[str]:
        return self.whole.names()

    def tensor(self, name: str, dtype: torch.dtype | None = None) -> Tensor:
        """Return its part of one tensor, rounded once to `dtype`; a safetensors file is read only there."""
        found = self.whole.tensor(name, dtype)
        along = self._along(name)
        if along is None:
            return found
        *_, part, kind = ("", *name.split("."))
        if part in SUMMED and kind == "bias":
            return found if self.share.rank == 0 else torch.zeros_like(found)
        # A copy, so that the rest of what was read goes.
        return found.narrow(1 if part in SUMMED else 0, along.start, len(along)).clone(
            memory_format=torch.contiguous_format
        )

    def _along(self, name: str) -> range | None:
        """Which rows or columns of a tensor it has; None: all."""
        shape, share = self.whole.shape, self.share
        if name == "lm_head.weight":
            return share.tokens(shape.vocab)
        if not name.startswith("model.layers."):
            return None
        _, _, number, module, *rest = name.split(".")
        spec = shape.stack[int(number)]
        if module == "self_attn":
            return self._heads(rest[0], spec.mixer) if divided(spec.mixer) else None
        if module != "mlp" or len(rest) < 2 or rest[-2] not in THINKING:
            return None
        if len(rest) == 2:
            return share.part(spec.hidden)
        assert spec.mixture is not None
        return share.part(spec.mixture.shared if rest[0] == "shared_experts" else spec.mixture.hidden)

    def _heads(self, part: str, spec: Mixer) -> range | None:
        """The rows of a matrix of attention that belong to its heads, or the columns of the one behind it."""
        if isinstance(spec, LatentSpec):
            widths = {"q_proj": spec.head_dim, "q_b_proj": spec.head_dim, "o_proj": spec.value_dim}
            widths["kv_b_proj"] = spec.plain + spec.value_dim
            return _times(self.share.part(spec.heads), widths.get(part))
        assert isinstance(spec, AttentionSpec)
        if part in ("k_proj", "v_proj"):
            return _times(self.share.keys(spec), spec.head_dim)
        widths = {"q_proj": spec.head_dim * (2 if spec.gated else 1), "o_proj": spec.head_dim, "sinks": 1}
        return _times(self.share.queries(spec), widths.get(part))


def _times(heads: range, width: int | None) -> range | None:
    return None if width is None else range(heads.start * width, heads.stop * width)

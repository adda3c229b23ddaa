"""What all drafter networks share: embeddings and heads, of their own or the target's, fused states, and layers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.law import NEVER
from ...models.drafters.description import DrafterFile
from ...models.layer_shape import RopeSpec
from ...models.rope_scaling import rope_frequencies
from ...models.shape import Shape
from ..cache.kv_pool import KVPool, Where
from ..network.attention import Attention, Planner, QuerySpan, Rotary
from ..network.layer import Layer
from ..network.linear import EmbeddingAndHead, GatedMLP, Linear, dense, gated_by, rms
from ..network.llama import Llama
from .guess import Guess, Step, Unread


class DrafterNetwork(ABC):
    """A drafter for the target that has these ends; `room` is for how many tokens its own keys have slots.

    A head that the file has not is the target's, and so are embeddings, which are looked up unscaled.
    """

    caches = True  # whether it keeps keys of the text; else the last state alone is read

    def __init__(self, file: DrafterFile, ends: EmbeddingAndHead, room: int) -> None:
        self.file, self.spec, self.ends = file, file.spec, ends
        like = ends.embedding
        apart = ("layers.",) if file.spec.of_family else ()  # a layer that is read from the file, where some stay wide
        held = {n: t for n, t in file.tensors.items() if not n.startswith(apart)}
        self.tensors = {n: t if n == "ids" else t.to(like) for n, t in held.items()}
        own = self.tensors.get("head.weight")
        self.head: Linear = ends.head if own is None else dense(own, None)
        self.embedding = self.tensors.get("embed.weight", like)
        self.ids = self.tensors["ids"].to(like.device) if "ids" in self.tensors else None
        self.vocab, self.eps = like.shape[0], self.spec.shape.norm_eps
        self.slots = KVPool(room if self.caches else 1)

    @abstractmethod
    def read(self, texts: Sequence[Unread]) -> list[Guess]:
        """Read the new tokens of these texts with their states; what follows each."""

    @abstractmethod
    def grow(self, steps: Sequence[Step], slots: Sequence[int]) -> list[Guess]:
        """What follows each of these tokens, given slots for all of them."""

    def slots_of(self, count: int) -> int:
        """How many slots so many drafted tokens need."""
        return 0

    def logits(self, guesses: Sequence[Guess]) -> Tensor:
        """What the head says of each [n, tokens that it knows]."""
        return self.head(torch.stack([guess.ahead[0] for guess in guesses]))

    @torch.no_grad()
    def scores(self, guesses: Sequence[Guess]) -> Tensor:
        """The scores of every token of the target after each of these guesses [n, vocab]."""
        logits = self.logits(guesses)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.ids is None:
            return logits
        return logits.new_full((len(guesses), self.vocab), NEVER).index_copy_(1, self.ids, logits)

    def embedded(self, tokens: Sequence[int]) -> Tensor:
        """The embeddings of these tokens."""
        return F.embedding(torch.tensor(tokens, device=self.embedding.device), self.embedding)

    def normed(self, name: str, x: Tensor) -> Tensor:
        """What the norm of this name makes of x; x itself if there is none."""
        weight = self.tensors.get(f"{name}.weight")
        return x if weight is None else rms(x, weight, self.eps)

    def fused(self, states: Tensor) -> Tensor:
        """Hidden states side by side [n, count · wide], as one of the drafter's own width."""
        weight = self.tensors.get("fuse.weight")
        states = self.normed("fuse_norm", states)
        if "fuse_norm.0.weight" in self.tensors:
            parts = states.chunk(len(self.spec.states), -1)
            states = torch.cat([self.normed(f"fuse_norm.{n}", part) for n, part in enumerate(parts)], -1)
        return states if weight is None else F.linear(states, weight, self.tensors.get("fuse.bias"))


class LayerCall(NamedTuple):
    """One layer's part of a forward: its number, rotations, where new keys go, what is attended, and how x enters."""

    number: int
    turns: tuple[Tensor, Tensor]
    into: Where
    spans: list[QuerySpan]
    first: Tensor | None
    entry_norm: bool


class DrafterLayers(Llama):
    """The layers of a drafter, over a pool of slots of its own; what enters them is not a token but a vector."""

    def __init__(self, network: DrafterNetwork, pool: KVPool) -> None:
        spec, like, tensors = network.spec, network.ends.embedding, network.tensors
        self._kept = pool
        stack, rope = self._read(network), self._rope(spec.shape)
        frequencies, grown = rope_frequencies(rope, like.device)
        rotary = Rotary(frequencies, grown, like.dtype)
        norm = tensors.get("norm.weight", like.new_ones(spec.shape.dim))
        ends = EmbeddingAndHead(network.embedding, None, norm, network.head)
        super().__init__(spec.shape, ends, stack, {rope: rotary}, pool.room, Planner)

    def _read(self, network: DrafterNetwork) -> list[Layer]:
        """The layers, of what the file holds."""
        return [_layer(network, number) for number in range(network.spec.shape.layers)]

    def _rope(self, shape: Shape) -> RopeSpec:
        """How its layers turn."""
        return shape.rope

    def _pool(self, room: int) -> KVPool:
        return self._kept

    @property
    def stack(self) -> list[Layer]:
        """The layers."""
        return self._stack

    @property
    def planner(self) -> Planner:
        """What plans attention over the pool."""
        return self._planner

    def turn_table(self, count: int) -> tuple[Tensor, Tensor]:
        """The rotations of the first `count` places, as kernels take them."""
        (rotary,) = self._rotaries.values()
        return rotary.table(count)

    def turns(self, places: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The rotation of these places."""
        (rotary,) = self._rotaries.values()
        return rotary.at(torch.tensor(places, device=self.ends.device), max(places))

    def through(
        self,
        x: Tensor,
        places: Sequence[int],
        into: Where,
        plan: Callable[[int], list[QuerySpan]],
        first: Tensor | None = None,
        entry_norm: bool = True,
    ) -> Tensor:
        """What leaves the last layer; `first` is what layer 0 attends with, where that is not x itself, normed."""
        turns = self.turns(places)
        for index, layer in enumerate(self._stack):
            x = self._one(layer, x, LayerCall(index, turns, into, plan(index), first, entry_norm))
        return x

    def _one(self, layer: Layer, x: Tensor, call: LayerCall) -> Tensor:
        """What leaves one layer."""
        if call.number == 0 and (call.first is not None or not call.entry_norm):
            entering = x if call.first is None else call.first
        else:
            entering = self._normed(x, layer.before_attention)
        return self._finish(layer, x, self._seen(layer, entering, call))

    def _seen(self, layer: Layer, entering: Tensor, call: LayerCall) -> Tensor:
        """What a layer's attention gathers for what enters it."""
        return self._gathered(layer, call.number, entering, call.turns, call.into, call.spans)


def _layer(network: DrafterNetwork, number: int) -> Layer:
    shape, tensors, at = network.spec.shape, network.tensors, f"layers.{number}."

    def matrix(*names: str) -> Linear:
        biases = [tensors[f"{at}{name}.bias"] for name in names if f"{at}{name}.bias" in tensors]
        weight = torch.cat([tensors[f"{at}{name}.weight"] for name in names])
        return dense(weight, torch.cat(biases) if biases else None)

    qk_norm = None
    if shape.qk_norm:
        queries = tensors[f"{at}self_attn.q_norm.weight"].expand(shape.heads, -1)
        qk_norm = torch.cat((queries, tensors[f"{at}self_attn.k_norm.weight"].expand(shape.kv_heads, -1)))
    mlp = None
    if f"{at}mlp.gate_proj.weight" in tensors:
        mlp = GatedMLP(matrix("mlp.gate_proj", "mlp.up_proj"), matrix("mlp.down_proj"), gated_by(shape.activation))
    before = tensors.get(f"{at}input_layernorm.weight", network.ends.embedding.new_ones(shape.dim))
    return Layer(
        mixer=Attention(
            shape.attentions[number],
            qkv=matrix(*(f"self_attn.{part}_proj" for part in "qkv")),
            out=matrix("self_attn.o_proj"),
            qk_norm=qk_norm,
        ),
        before_attention=before,
        after_attention=None,
        before_mlp=tensors[f"{at}post_attention_layernorm.weight"],
        mlp=mlp,
        after_mlp=None,
    )

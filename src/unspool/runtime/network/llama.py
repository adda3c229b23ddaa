"""The Llama family as one network: every difference between its members is a number of the Shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from ...core.canvas import HOLE
from ...core.errors import BadRequest, OutOfRoom
from ...models.layer_shape import AttentionSpec, RopeSpec
from ...models.rope_scaling import rope_frequencies
from ...models.shape import Shape
from ...models.weights import Checkpoint
from .. import network as networks
from ..cache.kv_pool import KVPool, Where
from ..engine.contracts import LAST
from .attention import Attention, Planner, QuerySpan, Rotary, Turns, attend, projected
from .layer import Layer, Loader
from .linear import EmbeddingAndHead, MakeLinear, apart, dense, rms
from .network import Batch, NetworkOutputs, Stages, narrowed, staying, unpaused

if TYPE_CHECKING:
    from ...models.mixer_shape import LatentSpec
    from .latent_attention import LatentAttention
    from .recurrent import RecurrentMixer
    from .recurrent_plan import RecurrentPlan, RecurrentPlanner  # of some families alone

MOST_ROOM = 8192  # tokens by default; memory is laid out for all of them, though only touched where written
HEAD_ROWS = 128  # rows whose logits are computed at a time: a look at a large canvas reads a thousand
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
L = TypeVar("L", bound="Llama")

STRETCHED = ("dynamic", "longrope")  # scalings that turn old keys anew when a text outgrows the original context


def usual_room(shape: Shape) -> int:
    """How many tokens the cache holds unless told: a text of the model's context."""
    return min(shape.context, MOST_ROOM)


class ForwardState(NamedTuple):
    """What all layers of a forward share: the tokens to read, their places, rotations, attention plans, and slots."""

    read: Tensor
    places: Tensor
    turns: dict[RopeSpec, Turns]
    plans: dict[tuple[int | None, bool, int], list[QuerySpan]]
    into: Where
    runs: list[RecurrentPlan]  # none if no layer is recurrent

    def of(self, spec: AttentionSpec | LatentSpec) -> tuple[Turns | None, Where, list[QuerySpan]]:
        """What one layer's attention needs of it."""
        turns = self.turns[spec.rope] if spec.rope is not None else None
        return turns, self.into, self.plans[plan_key(spec)]


def _attending(shape: Shape) -> list[AttentionSpec | LatentSpec]:
    mixers = (layer.mixer for layer in shape.stack)
    return [mixer for mixer in mixers if mixer is not None and mixer.kind != "recurrent"]


def plan_key(spec: AttentionSpec | LatentSpec) -> tuple[int | None, bool, int]:
    """What the plan of a layer's attention depends on."""
    if spec.kind == "latent":
        return None, False, spec.heads
    return spec.window, spec.chunked, spec.heads // spec.kv_heads


class Llama:
    """Llama, Mistral, SmolLM, Qwen2/2.5, Qwen3, Gemma 3 and Ling, over packed tokens and a pool of slots.

    Everything but attention works on all tokens of a batch as one matrix [n, dim], without padding. Tokens meet only in
    attention, which reads slots, so that rows may have any length and share any prefix.
    """

    def __init__(
        self,
        shape: Shape,
        ends: EmbeddingAndHead,
        stack: list[Layer],
        rotaries: dict[RopeSpec, Rotary],
        room: int,
        planner: type[Planner] = Planner,
    ) -> None:
        self.shape = shape
        self.ends, self._stack, self._rotaries = ends, stack, rotaries
        self._attending = _attending(shape)
        self._recurrent: RecurrentPlanner | None = None
        if shape.recurrent:
            size, alone = shape.state_bytes(ends.dtype), planner.alone
            self._recurrent = networks.recurrent_plan.planner(size, room, ends.device, alone)
        self._slots = self._pool(room)
        if ends.transfer is not None:
            self._slots.keep_states(sorted(set(ends.transfer.layers)), ends.embedding)
        self._planner = planner(self._slots, shape.heads // shape.kv_heads, ends.dtype, ends.device)

    @classmethod
    @torch.no_grad()
    def load(
        cls: type[L],
        checkpoint: Checkpoint,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        room: int | None = None,
        linear: MakeLinear = dense,
        planner: type[Planner] = Planner,
        router: MakeLinear = dense,
        loader: type[Loader] = Loader,
    ) -> L:
        """Read all weights, each rounded once to `dtype`; `room` is how many tokens all texts together may hold.

        `linear` lays out the matrices. The default leaves them as they are, and a tied head is the embedding itself; a
        layout of its own gives a tied head a second copy. `router` lays out the matrices that choose experts, which are
        never rounded. `planner` says how tokens gather their keys. `loader` reads the checkpoint.
        """
        if dtype not in DTYPES:
            raise BadRequest(f"dtype is {dtype}; expected one of {', '.join(map(str, DTYPES))}.")
        if room is not None and room < 1:
            raise BadRequest(f"room is {room} tokens; expected at least 1, or None for the model's context.")
        shape, read = checkpoint.shape, loader(checkpoint, dtype, torch.device(device), linear, router)
        ends, stack = read.ends(), [read.layer(index) for index in range(shape.layers)]
        rotaries = {}
        for rope in {mixer.rope for mixer in _attending(shape)}:
            if rope is not None:
                factors = checkpoint.rope_factors if rope == shape.rope else None
                rotaries[rope] = Rotary(*rope_frequencies(rope, device, factors), dtype)
        return cls(shape, ends, stack, rotaries, room or usual_room(shape), planner)

    def part(self: L, layers: Sequence[int], ends: EmbeddingAndHead | None = None) -> L:
        """The network with these of its layers alone: the same weights, and a pool of its own with as much room.

        `ends` may stand before and behind them in place of its own.
        """
        shape, stack = self.shape.part(layers), [self._stack[i] for i in layers]
        ends = ends or self.ends
        if ends.transfer is not None:  # whose layers have other numbers here
            ends = replace(ends, transfer=None)
        return type(self)(shape, ends, stack, self._rotaries, self._slots.room, type(self._planner))

    @property
    def vocab(self) -> int:
        return self.shape.vocab

    @property
    def context(self) -> int:
        """The longest text it can read; where stretching would turn cached keys anew, the context before stretching."""
        scaling = self.shape.rope_scaling
        return scaling.original_context if scaling and scaling.kind in STRETCHED else self.shape.context

    @property
    def layers(self) -> int:
        return self.shape.layers

    @property
    def place(self) -> torch.device:
        """The device of its weights."""
        return self.ends.device

    @property
    def slots(self) -> KVPool:
        return self._slots

    def _pool(self, room: int) -> KVPool:
        return KVPool(room) if self._recurrent is None else self._recurrent.pool(room)

    def forward(self, batch: Batch) -> NetworkOutputs:
        return unpaused(self.stages(batch))

    @torch.no_grad()
    def stages(self, batch: Batch) -> Stages[NetworkOutputs]:
        """A forward that pauses after every layer, and after every few rows of the head."""
        furthest, device = self._check(batch), self.ends.device
        x = self._embedded(batch.tokens.to(device), batch)
        told = None if self.ends.told is None else self.ends.told(batch.tokens.to(device), x)
        work = self._work(batch, furthest)
        hidden: dict[int, Tensor] = {}
        noted, transfer = self._slots.noted, self.ends.transfer
        handed = [] if transfer is None else transfer.plan(batch)
        for index, layer in enumerate(self._stack):
            if index in noted:
                self._slots.note(index, work.into, x)
            if transfer is not None:
                x = transfer.hand(index, x, handed, self._slots)
            if index == 1 and batch.renewals:
                stay = staying(batch.renewals, *self._values(layer, index, x, work.into))
                x, batch = x[stay], narrowed(batch, stay)
                work = self._work(batch, furthest)
            if index in batch.want:
                hidden[index] = x[work.read]
            if isinstance(layer.mixer, Attention):
                normed = self._normed(x, layer.before_attention)
                seen = self._gathered(layer, index, normed, *work.of(layer.mixer.spec), work.places)
            else:
                seen = self._otherwise(layer, index, x, work)
            if index == self.layers - 1 and LAST not in noted:
                x, seen = x[work.read], seen[work.read]  # nothing more is asked of the other tokens
                told = None if told is None else told[work.read]
            x = self._finish(layer, x, seen)
            if layer.ending is not None:
                x = layer.ending(x, None if told is None else told[:, index])
            yield
        x = rms(x, self.ends.norm, self.shape.norm_eps)
        if LAST in noted:
            self._slots.note(LAST, work.into, x)
            x = x[work.read]
        if -1 in batch.want:
            hidden[-1] = x
        read = list[Tensor]()
        for rows in torch.split(x, HEAD_ROWS):
            read.append(self.ends.head(rows))
            yield
        logits = read[0] if len(read) == 1 else torch.cat(read)
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self.shape.logit_scale != 1:
            logits = logits * self.shape.logit_scale
        if self.shape.logit_softcap is not None:
            logits = apart(logits / self.shape.logit_softcap).tanh() * self.shape.logit_softcap
        if self.shape.filling is not None:
            logits[:, self.shape.filling.mask] = float("-inf")
        return NetworkOutputs(logits, hidden)

    def _work(self, batch: Batch, furthest: int) -> ForwardState:
        device = self.ends.device
        places = batch.places.to(device)
        return ForwardState(
            batch.read.to(device),
            places,
            {rope: rotary.at(places, furthest) for rope, rotary in self._rotaries.items()},
            {
                (window, chunked, group): replace(self._planner, group=group).plan(batch.rows, window, chunked)
                for window, chunked, group in dict.fromkeys(map(plan_key, self._attending))
            },
            self._slots.where(batch.slots, device),
            [] if self._recurrent is None else self._recurrent.plan(batch.rows),
        )

    def _values(self, layer: Layer, index: int, x: Tensor, at: Where) -> tuple[Tensor, Tensor]:
        """The values that tokens have now in a layer, and those in their slots, each [n, kv_heads * head_dim]."""
        width = self.shape.kv_heads * self.shape.head_dim
        now = layer.attention.qkv(self._normed(x, layer.before_attention))[:, -width:]
        return now, self._slots.read(index, at)[1].transpose(0, 1).reshape(now.shape)

    def _embedded(self, tokens: Tensor, batch: Batch) -> Tensor:
        mask = self.ends.mask
        if mask is None:
            x = self.ends.embed(tokens)
        else:
            x = self.ends.embed(tokens.clamp(min=0))
            x = torch.where((tokens == HOLE)[:, None], mask, x)
            if batch.mixed is not None:
                rows, p, weight = (part.to(tokens.device) for part in batch.mixed)
                weight = weight.to(x.dtype)[:, None]
                x[rows] = (1 - weight) * mask + weight * (p.to(x.dtype) @ self.ends.embedding)
        return x if self.ends.scale is None else x * self.ends.scale

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else rms(x, weight, self.shape.norm_eps)

    def _gathered(
        self,
        layer: Layer,
        index: int,
        x: Tensor,
        turns: Turns | None,
        into: Where,
        plan: list[QuerySpan],
        places: Tensor | None = None,
    ) -> Tensor:
        """Store keys and values of normed tokens; what each gathers [n, heads * head_dim]."""
        assert isinstance(layer.mixer, Attention)
        mixer, spec = layer.mixer, layer.mixer.spec
        found = projected(mixer, x, turns, places, self.shape.norm_eps)
        if spec.keys_of is None:
            self._slots.write(index, into, found.keys.transpose(0, 1), found.values.transpose(0, 1))
        else:
            index = spec.keys_of
        seen = attend(found.queries, index, plan, self._slots, spec.scale, spec.softcap, mixer.sinks)
        return seen if found.gate is None else seen * apart(found.gate).sigmoid()

    def _otherwise(self, layer: Layer, index: int, x: Tensor, work: ForwardState) -> Tensor:
        """What tokens gather in a layer that does not attend to keys and values of every head."""
        mixer, spec, normed = layer.mixer, self.shape.stack[index].mixer, self._normed(x, layer.before_attention)
        if spec is not None and spec.kind == "latent":
            turns, into, plan = work.of(spec)
            assert turns is not None
            return cast("LatentAttention", mixer)(normed, index, turns, into, plan, self._slots)
        if mixer is None:
            return normed
        parts = [cast("RecurrentMixer", mixer)(normed[plan.tokens], index, plan) for plan in work.runs]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _finish(self, layer: Layer, x: Tensor, seen: Tensor) -> Tensor:
        """Add what was gathered to the residual stream, and then what the perceptron or the experts make of it."""
        if layer.mixer is not None:
            x = self._added(x, self._normed(layer.mixer.out(seen), layer.after_attention))
        if layer.mlp is None:
            return x
        return self._added(x, self._normed(layer.mlp(self._normed(x, layer.before_mlp)), layer.after_mlp))

    def _added(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y if self.shape.residual_scale == 1 else x + y * self.shape.residual_scale

    def refuse_holes(self) -> None:
        """Refuse holes where the model has no mask to show for them."""
        if self.ends.mask is None:
            raise BadRequest(
                "the method shows the model holes, but this one reads text only; it needs one that was trained to fill "
                "them, such as smollm2-diffusion"
            )

    def _check(self, batch: Batch) -> int:
        """Return the furthest place, before any work is done."""
        furthest = max(max(row.places[-row.count :]) for row in batch.rows)
        if furthest >= self.context:
            raise OutOfRoom(
                f"a token stands at position {furthest}, but this model reads at most {self.context} tokens. "
                "Shorten the text or choose a model with a longer context."
            )
        if int(batch.tokens.min()) == HOLE:
            self.refuse_holes()
        unknown = [index for index in batch.want if not -1 <= index < self.layers]
        if unknown:
            raise BadRequest(
                f"hidden:{unknown[0]} was asked for; expected 0 to {self.layers - 1} for what enters that layer, or -1 "
                "for what leaves the last norm."
            )
        return furthest

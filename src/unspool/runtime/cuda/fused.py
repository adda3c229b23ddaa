"""The Llama family on fused kernels: a layer is six or seven launches, and a whole step one graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from torch import Tensor

from ...core.canvas import HOLE
from ...core.errors import BadRequest
from ...kernels.attention import attention
from ...kernels.gate import gate
from ...kernels.kernel_rows import Rows
from ...kernels.linear import linear
from ...kernels.norm import add_rms, rms
from ...kernels.rope import RopeTurn, rope
from ...kernels.route import scores
from ...kernels.tile import MOST_ROWS
from ...kernels.tiling import Tiling
from ...kernels.turned_heads import heads
from ...models.layer_shape import AttentionSpec, RopeSpec
from ...models.weights import Checkpoint
from ..cache.checkpoint_pool import RecurrentGatherPool
from ..cache.kv_pool import GatherPool
from ..engine.contracts import LAST
from ..network.attention import Attention, Planner, parted
from ..network.experts import Experts, ExpertsBeside
from ..network.layer import Layer, Loader
from ..network.linear import DenseLinear, GatedMLP, Linear, MakeLinear, SquaredMLP
from ..network.llama import Llama
from ..network.quantised import Int8Linear
from .fusible import unfused
from .latent_kernels import LATENT_GROUP, latent_parts, latent_values
from .recurrent_kernels import MIXERS, lay_out, recurred
from .stacked_experts import StackingLoader, beside, mixed, normed_route
from .tiled import TILED, times
from .unusual import GATES, cached, turned, unusual

if TYPE_CHECKING:
    from ...models.mixer_shape import LatentSpec
    from ..network.latent_attention import LatentAttention
    from ..network.recurrent_plan import RecurrentPlanner

F_ = TypeVar("F_", bound="Fused")
Thinking = GatedMLP | SquaredMLP | Experts | ExpertsBeside


class Fused(Llama):
    """The same numbers as `Llama` up to rounding, over a rectangular batch: rows × tokens, padding included.

    Keys and values live in loose slots that kernels find through a table, so rows may have any length and share any
    prefix, and a launch depends on the shape of the batch alone. That is what lets a graph replay it.
    """

    _slots: GatherPool
    steady = False  # whether products are cut so that a token's results have the same bits in every batch
    heads_at_once: int | None = None  # that a program turns
    matrix: ClassVar[type[DenseLinear]] = DenseLinear  # what whole matrices are to parts that apply them by themselves

    @classmethod
    def load(
        cls: type[F_],
        checkpoint: Checkpoint,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        room: int | None = None,
        linear: MakeLinear | None = None,
        planner: type[Planner] = Planner,
        router: MakeLinear = DenseLinear,
        loader: type[Loader] = StackingLoader,
    ) -> F_:
        return super().load(checkpoint, dtype, device, room, linear or cls.matrix, planner, router, loader)

    def _pool(self, room: int) -> GatherPool:
        shape, lacking = self.shape, unfused(self.shape)
        if lacking is not None:
            raise BadRequest(f"this {shape.family} model cannot run on the fused kernels: {lacking}. Use `Llama`.")
        sizes = [cached(layer.mixer) for layer in shape.stack]
        if self._recurrent is None:
            return GatherPool(room, sizes, self.dtype, self.device)
        self.lay_out_states()
        return RecurrentGatherPool(room, sizes, self.dtype, self.device, self._recurrent.checkpoints)

    @property
    def recurrent(self) -> RecurrentPlanner | None:
        """What takes checkpoints for its tokens, if some layers carry a state."""
        return self._recurrent

    def lay_out_states(self) -> bool:
        """Have storage for all checkpoints that were taken; whether some of it had to move."""
        assert self._recurrent is not None
        return lay_out(self._stack, self._recurrent.checkpoints, self.dtype, self.device)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.ends.embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """What it computes in."""
        return self.ends.embedding.dtype

    @cached_property
    def placed(self) -> bool:
        """Whether the places of drafted keys are asked for: some layer sees only the last tokens."""
        return any(mixer.window is not None for mixer in self.shape.attentions)

    @cached_property
    def pool(self) -> Any:
        """The memory of this network's graphs: they never run at the same time, and it ends with the last of them."""
        return torch.cuda.graph_pool_handle()

    @cached_property
    def _inlet(self) -> Tensor:
        """What every token looks like, and behind the last one what a hole does."""
        embedding, mask = self.ends.embedding, self.ends.mask
        return embedding if mask is None else torch.cat((embedding, mask[None].to(embedding)))

    @cached_property
    def _turns(self) -> dict[RopeSpec, tuple[Tensor, Tensor]]:
        return {rope: rotary.table(self.context) for rope, rotary in self._rotaries.items()}

    @cached_property
    def _untold(self) -> tuple[Tensor, Tensor]:
        """The turns of layers that are not told places."""
        nothing = torch.empty(0, 0, device=self.device)
        return nothing, nothing

    @cached_property
    def _logits(self) -> dict[int, Tensor]:
        return {}

    @property
    def slots(self) -> GatherPool:
        """Where keys and values live."""
        return self._slots

    def shown(self, tokens: list[int]) -> list[int]:
        """Tokens with holes among them, as what the network looks up."""
        self.refuse_holes()
        return [self.vocab if token == HOLE else token for token in tokens]

    @torch.no_grad()
    def run(self, tokens: Tensor, rows: Rows, want: Sequence[int] = ()) -> tuple[Tensor, dict[int, Tensor]]:
        """What leaves the last layer [n, dim], and what entered the wanted ones."""
        x = F.embedding(tokens, self._inlet)
        if self.ends.scale is not None:
            x = x * self.ends.scale
        told = None if self.ends.told is None else self.ends.told(tokens, x)
        hidden: dict[int, Tensor] = {}
        noted = self._slots.noted
        for index, layer in enumerate(self._stack):
            if index in want:
                hidden[index] = x
            if index in noted:
                self._slots.note(index, rows.slots, x)
            x = self._layer(layer, index, x, rows)
            if layer.ending is not None:
                x = layer.ending(x, None if told is None else told[:, index])
        if LAST in noted:
            self._slots.note(LAST, rows.slots, self.normed(x))
        return x, hidden

    @torch.no_grad()
    def read(self, x: Tensor) -> Tensor:
        """The logits [n, vocab], in the network's own type, whose float32 values are the same, unless they are scaled.

        They stand where the next call with as many tokens writes its own, so that graphs do not each keep theirs.
        """
        head = self.ends.head
        assert isinstance(head, DenseLinear)
        scale, cap = self.shape.logit_scale, self.shape.logit_softcap
        if x.shape[0] not in self._logits:
            kind = x.dtype if scale == 1 and cap is None else torch.float32
            self._logits[x.shape[0]] = torch.empty(x.shape[0], self.vocab, dtype=kind, device=x.device)
        out = self._logits[x.shape[0]]
        logits = linear(x, head.weight, norm=self.ends.norm, eps=self.shape.norm_eps, out=out, steady=self.steady)
        if scale != 1:
            logits.mul_(scale)
        if cap is not None:
            logits.div_(cap).tanh_().mul_(cap)
        if self.shape.filling is not None:
            logits[:, self.shape.filling.mask] = float("-inf")
        return logits

    def normed(self, x: Tensor) -> Tensor:
        """What leaves the last norm."""
        return rms(x, self.ends.norm, self.shape.norm_eps)

    def _layer(self, layer: Layer, index: int, x: Tensor, rows: Rows) -> Tensor:
        mixer, simple = layer.mixer, self.shape.residual_scale == 1
        mlp = layer.mlp
        if mixer is not None:
            if isinstance(mixer, Attention):
                seen = self._seen(layer, mixer, index, x, rows)
            elif isinstance(mixer, MIXERS):
                assert self._recurrent is not None
                normed = self._normed(x, layer.before_attention)
                seen = recurred(mixer, normed, index, rows, self._recurrent.checkpoints, self._product)
            else:
                seen = self._latent(mixer, self._normed(x, layer.before_attention), index, rows)
            if layer.after_attention is None and simple:
                x = self._product(mixer.out, seen, residual=x)
            elif simple and self._sandwiched(layer):
                return self._sandwich(layer, x, self._product(mixer.out, seen))
            else:
                x = self._added(x, self._normed(self._product(mixer.out, seen), layer.after_attention))
        if mlp is None:
            return x
        if layer.after_mlp is None and simple:
            return self._thought(mlp, x, layer.before_mlp, x)
        return self._added(x, self._normed(self._thought(mlp, x, layer.before_mlp, None), layer.after_mlp))

    def _seen(self, layer: Layer, mixer: Attention, index: int, x: Tensor, rows: Rows) -> Tensor:
        """Store the keys and values of all tokens, and return what each gathers [n, heads * head_dim]."""
        spec, eps, held = mixer.spec, self.shape.norm_eps, index if mixer.spec.keys_of is None else mixer.spec.keys_of
        keys, values = self._slots.keys[held], self._slots.values[held]
        cos, sin = self._untold if spec.rope is None else self._turns[spec.rope]
        if not unusual(spec):
            turn = RopeTurn(cos, sin, rows.places, rows.slots, keys, values)
            queries = self._queries(mixer, x, layer.before_attention, turn)
            return self._attended(queries, keys, values, rows, spec, mixer.sinks)
        qkv = self._product(mixer.qkv, x, norm=layer.before_attention)
        turns = None if spec.rope is None else turned(cos, sin, rows.places, x.dtype)
        found = parted(mixer, qkv, turns, rows.places, eps)
        if spec.keys_of is None:
            keys[:, rows.slots], values[:, rows.slots] = found.keys.transpose(0, 1), found.values.transpose(0, 1)
        seen = self._attended(found.queries.contiguous(), keys, values, rows, spec, mixer.sinks)
        return seen if found.gate is None else seen * found.gate.sigmoid()

    def _queries(self, mixer: Attention, x: Tensor, norm: Tensor | None, turn: RopeTurn) -> Tensor:
        """Turned queries; keys and values are put in slots, which were there before `run` began."""
        matrix, eps, block = mixer.qkv, self.shape.norm_eps, self.heads_at_once
        if isinstance(matrix, DenseLinear):
            return heads(x, matrix.weight, matrix.bias, norm, eps, turn, mixer.qk_norm, block, self.steady)
        return rope(self._product(matrix, x, norm=norm), mixer.qk_norm, eps, *turn, block)

    def _latent(self, mixer: LatentAttention, x: Tensor, index: int, rows: Rows) -> Tensor:
        """The same by latents: heads that share one key are groups of few, which all read the same pool."""
        spec, stored = mixer.spec, self._slots.keys[index]
        queries, kept = latent_parts(mixer, x, turned(*self._turns[spec.rope], rows.places, x.dtype), self._product)
        stored[0, rows.slots] = kept
        wide = stored.expand(-(-spec.heads // LATENT_GROUP), -1, -1)
        seen = self._attended(queries, wide, wide, rows, spec, None)
        return latent_values(mixer, seen)

    def _sandwiched(self, layer: Layer) -> bool:
        plain = isinstance(layer.mlp, GatedMLP) and self.shape.activation in GATES
        return plain and None not in (layer.before_mlp, layer.after_attention, layer.after_mlp)

    def _sandwich(self, layer: Layer, x: Tensor, added: Tensor) -> Tensor:
        """Gemma's perceptron, between two norms."""
        mlp, eps = cast("GatedMLP", layer.mlp), self.shape.norm_eps
        assert layer.before_mlp is not None
        x, normed = add_rms(x, added, layer.before_mlp, eps, layer.after_attention)
        added = self._product(mlp.down, self._product(mlp.gate_up, normed, activation=self.shape.activation))
        return add_rms(x, added, layer.before_mlp, eps, layer.after_mlp)[0]

    def _thought(self, mlp: Thinking, x: Tensor, norm: Tensor | None, residual: Tensor | None) -> Tensor:
        """What a perceptron or experts make of tokens that are normed first, added to the residual if there is one."""
        if isinstance(mlp, GatedMLP) and self.shape.activation in GATES:
            bent = self._product(mlp.gate_up, x, norm=norm, activation=self.shape.activation)
            return self._product(mlp.down, bent, residual=residual)
        if isinstance(mlp, SquaredMLP):
            bent = F.relu(self._product(mlp.up, x, norm=norm)).square_()
            return self._product(mlp.down, bent, residual=residual)
        if isinstance(mlp, ExpertsBeside):
            dense = self._thought(mlp.mlp, x, mlp.before_mlp, None)
            y = beside(mlp, self._normed(x, norm), self._normed, dense, self.steady)
            return y if residual is None else residual + y
        assert isinstance(mlp, Experts)
        normed, routed = normed_route(mlp, x, norm, self.shape.norm_eps)
        return mixed(mlp, normed, self._shared(mlp, normed), residual, routed, self.steady)

    def _shared(self, mlp: Experts, normed: Tensor) -> Tensor | None:
        """What the expert says that every token uses."""
        if mlp.shared is None:
            return None
        said = self._thought(mlp.shared, normed, None, None)
        if mlp.shared_gate is None:
            return said
        gate = cast("DenseLinear", mlp.shared_gate)
        return said * scores(normed, gate.weight).double().sigmoid().to(said.dtype)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else rms(x, weight, self.shape.norm_eps)

    def _attended(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        rows: Rows,
        spec: AttentionSpec | LatentSpec,
        sinks: Tensor | None,
    ) -> Tensor:
        """What each token gathers from what it sees."""
        cut = self._tiling(queries.shape[1] // keys.shape[0], keys, rows)
        if spec.kind == "latent":
            return attention(queries, keys, values, rows, spec.scale, None, cut)
        return attention(
            queries, keys, values, rows, spec.scale, spec.window, cut,
            chunked=spec.chunked, softcap=spec.softcap, sinks=sinks,
        )  # fmt: skip

    def _tiling(self, group: int, keys: Tensor, rows: Rows) -> Tiling | None:
        """How attention of groups of so many heads is cut; None if as suits the batch."""
        return None

    def _product(
        self,
        matrix: Linear,
        x: Tensor,
        norm: Tensor | None = None,
        residual: Tensor | None = None,
        activation: str | None = None,
    ) -> Tensor:
        """A matrix with what stands around it, in as few launches as there are kernels for."""
        eps, few = self.shape.norm_eps, x.shape[0] <= MOST_ROWS
        if isinstance(matrix, DenseLinear) or (isinstance(matrix, Int8Linear) and few):
            scale = matrix.scale if isinstance(matrix, Int8Linear) else None
            return linear(
                x,
                matrix.weight,
                matrix.bias,
                scale=scale,
                norm=norm,
                eps=eps,
                residual=residual,
                activation=activation,
                steady=self.steady,
            )
        if norm is not None:
            x = rms(x, norm, eps)
        if isinstance(matrix, TILED) and few and x.dtype != torch.float32:
            return times(matrix, x, residual, activation)
        y = matrix(x)
        if activation is not None:
            return gate(y, activation)
        return y if residual is None else residual + y

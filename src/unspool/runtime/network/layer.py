"""The weights of one layer, fused while they are read: one matrix for queries, keys and values, one for gate and up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...models.layer_shape import BESIDE_NORMS, AttentionSpec, ExpertSpec, LayerSpec
from ...models.weights import Checkpoint
from .. import network as networks
from .attention import Attention
from .linear import EmbeddingAndHead, GatedMLP, Linear, MakeLinear, SquaredMLP, dense, gated_by

if TYPE_CHECKING:
    from ...models.mixer_shape import LatentSpec, RecurrentSpec
    from .experts import Experts, ExpertsBeside, ExpertSet  # of a few models alone
    from .hidden_transfer import HiddenTransfer
    from .latent_attention import LatentAttention
    from .recurrent import RecurrentMixer


@dataclass(frozen=True)
class Layer:
    """One layer: h = x + mixer(norm(x)), and then h + mlp(norm(h)); None where it has no such part."""

    mixer: Attention | LatentAttention | RecurrentMixer | None
    before_attention: Tensor | None
    after_attention: Tensor | None
    before_mlp: Tensor | None
    mlp: GatedMLP | SquaredMLP | Experts | ExpertsBeside | None
    after_mlp: Tensor | None
    ending: Callable[[Tensor, Tensor | None], Tensor] | None = None  # what it does last, see `per_layer`

    @property
    def attention(self) -> Attention:
        """Its mixer, where all layers attend."""
        assert isinstance(self.mixer, Attention)
        return self.mixer


class Loader:
    """Reads tensors of a checkpoint onto a device, each rounded once; `router` lays out what chooses experts."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: torch.dtype,
        device: torch.device,
        linear: MakeLinear,
        router: MakeLinear = dense,
    ) -> None:
        self.checkpoint, self.dtype, self.device = checkpoint, dtype, device
        self.linear, self.router = linear, router

    def tensor(self, name: str) -> Tensor:
        """Return one tensor, stored by rows."""
        return self.checkpoint.tensor(name, self.dtype).to(self.device).contiguous()

    def norm(self, name: str) -> Tensor:
        """Return the factors of a norm; where they multiply before it is rounded, they stay in float32."""
        wide = self.checkpoint.shape.wide_norms and self.dtype.itemsize < torch.float32.itemsize
        return self.checkpoint.tensor(f"{name}.weight", torch.float32 if wide else self.dtype).to(self.device)

    def matrix(self, names: Sequence[str], has_bias: bool) -> Linear:
        """Return the matrices of these names as one, stacked; only one of them is in memory twice at a time."""
        weight = self._stacked([f"{name}.weight" for name in names])
        return self.linear(weight, self._stacked([f"{name}.bias" for name in names]) if has_bias else None)

    def ends(self) -> EmbeddingAndHead:
        """Return embedding and head; a tied head is the embedding itself, unless `linear` lays it out anew."""
        shape = self.checkpoint.shape
        embedding = self.tensor("model.embed_tokens.weight")
        head = self.linear(embedding if shape.tied else self.tensor("lm_head.weight"), None)
        return EmbeddingAndHead(
            embedding,
            self.scale(),
            self.norm("model.norm"),
            head,
            self._mask(embedding),
            self._told(),
            self._transfer(),
        )

    def _transfer(self) -> HiddenTransfer | None:
        filling = self.checkpoint.shape.filling
        if filling is None or not filling.transfers:
            return None
        names = [f"model.transfer.{number}" for number in range(len(filling.transfers))]
        weights, biases = ([self.tensor(f"{name}.{part}") for name in names] for part in ("weight", "bias"))
        return networks.hidden_transfer.HiddenTransfer(filling.transfers, weights, biases)

    def _told(self) -> Callable[[Tensor, Tensor], Tensor] | None:
        shape = self.checkpoint.shape
        if not shape.told:
            return None
        table, project = self.tensor("model.embed_tokens_per_layer.weight"), ["model.per_layer_model_projection"]
        norm = self.norm("model.per_layer_projection_norm")
        return networks.per_layer.PerLayerEmbedding(table, self.matrix(project, False), norm, shape.norm_eps)

    def _ending(self, at: str) -> Callable[[Tensor, Tensor | None], Tensor] | None:
        shape = self.checkpoint.shape
        if not shape.layer_scalars:
            return None
        return networks.per_layer.LayerEnding(
            self.tensor(f"{at}.layer_scalar"),
            self.matrix([f"{at}.per_layer_input_gate"], False) if shape.told else None,
            self.matrix([f"{at}.per_layer_projection"], False) if shape.told else None,
            self.norm(f"{at}.post_per_layer_input_norm") if shape.told else None,
            gated_by(shape.activation),
            shape.norm_eps,
        )

    def scale(self) -> Tensor | None:
        """Return what embeddings are multiplied by, rounded as they are; None for 1."""
        scale = self.checkpoint.shape.embed_scale
        return torch.tensor(scale, dtype=torch.float64).to(self.device, self.dtype) if scale != 1 else None

    def _mask(self, embedding: Tensor) -> Tensor | None:
        filling = self.checkpoint.shape.filling
        if filling is None:
            return None
        return self.tensor("model.mask") if filling.learned else embedding[filling.mask]

    def layer(self, index: int) -> Layer:
        """Return one layer."""
        shape, at = self.checkpoint.shape, f"model.layers.{index}"
        spec, before, after = shape.stack[index], shape.pre_norms, shape.post_norms
        after_attention, after_mlp = f"{at}.post_attention_layernorm", f"{at}.post_feedforward_layernorm"
        beside = spec.mixture is not None and spec.mixture.beside
        before_mlp = f"{at}.pre_feedforward_layernorm" if after else after_attention
        return Layer(
            mixer=self._mixer(at, spec.mixer),
            before_attention=self.norm(f"{at}.input_layernorm") if before and spec.mixer else None,
            after_attention=self.norm(after_attention) if after else None,
            before_mlp=self.norm(before_mlp) if before and spec.thinks and not beside else None,
            mlp=self._beside(at, spec.mixture) if beside else self._thinking(f"{at}.mlp", spec),
            after_mlp=self.norm(after_mlp) if after else None,
            ending=self._ending(at),
        )

    def _mixer(
        self, at: str, spec: AttentionSpec | LatentSpec | RecurrentSpec | None
    ) -> Attention | LatentAttention | RecurrentMixer | None:
        if spec is None or isinstance(spec, AttentionSpec):
            return None if spec is None else self._attention(f"{at}.self_attn", spec)
        other = networks.recurrent_loader
        if spec.kind == "latent":
            return other.latent(self, f"{at}.self_attn", spec)
        return other.recurrent(self, at, spec)

    def _thinking(self, at: str, spec: LayerSpec) -> GatedMLP | SquaredMLP | Experts | None:
        if spec.mixture is not None:
            return self._experts(at, spec.mixture)
        return self._perceptron(at, self.checkpoint.shape.mlp_bias) if spec.hidden else None

    def _attention(self, at: str, spec: AttentionSpec) -> Attention:
        parts = "q" if spec.keys_of is not None else "qk" if spec.values_are_keys else "qkv"
        qk_norm, all_norms = None, tuple[Tensor, ...]()
        counts = {"q": spec.heads, "k": spec.kv_heads} if spec.keys_of is None else {"q": spec.heads}
        if spec.qk_norm == "head":
            qk_norm = torch.cat([self.norm(f"{at}.{part}_norm").expand(n, -1) for part, n in counts.items()])
        elif spec.qk_norm == "all":
            all_norms = tuple(self.norm(f"{at}.{part}_norm") for part in counts)
        return Attention(
            spec,
            qkv=self.matrix([f"{at}.{part}_proj" for part in parts], spec.qkv_bias),
            out=self.matrix([f"{at}.o_proj"], spec.out_bias),
            qk_norm=qk_norm,
            all_norms=all_norms,
            sinks=self.tensor(f"{at}.sinks") if spec.sinks else None,
        )

    def _beside(self, at: str, mixture: ExpertSpec | None) -> ExpertsBeside:
        assert mixture is not None
        wide = torch.promote_types(self.dtype, torch.float32)
        return networks.experts.ExpertsBeside(
            self._perceptron(f"{at}.mlp", False),
            self._experts(f"{at}.mlp", mixture),
            self.norm(f"{at}.pre_feedforward_layernorm"),
            [self.norm(f"{at}.{name}") for name in BESIDE_NORMS],
            self.checkpoint.tensor(f"{at}.mlp.gate.scale", wide).to(self.device),
            self.checkpoint.tensor(f"{at}.mlp.gate.expert_scale", wide).to(self.device),
            self.checkpoint.shape.norm_eps,
        )

    def _perceptron(self, at: str, bias: bool) -> GatedMLP | SquaredMLP:
        if self.checkpoint.shape.activation == "relu2":
            return SquaredMLP(self.matrix([f"{at}.up_proj"], bias), self.matrix([f"{at}.down_proj"], bias))
        gate_up = self.matrix([f"{at}.gate_proj", f"{at}.up_proj"], bias)
        gated = gated_by(self.checkpoint.shape.activation)
        return GatedMLP(gate_up, self.matrix([f"{at}.down_proj"], bias), gated)

    def _experts(self, at: str, mixture: ExpertSpec) -> Experts:
        """The experts of a layer; what chooses among them is wide, for near ties would go the other way."""
        wide = torch.promote_types(self.dtype, torch.float32)

        def read(name: str) -> Tensor:
            return self.checkpoint.tensor(f"{at}.{name}", wide).to(self.device)

        router = self.router(read("gate.weight"), read("gate.bias") if mixture.router_bias else None)
        experts = [self._perceptron(f"{at}.experts.{number}", mixture.expert_bias) for number in range(mixture.count)]
        return networks.experts.Experts(
            mixture,
            router,
            read("gate.expert_bias") if mixture.biased else None,
            self.crowd(experts),
            self._perceptron(f"{at}.shared_experts", False) if mixture.shared else None,
            self.router(read("shared_gate.weight"), None) if mixture.shared_gate else None,
        )

    def crowd(self, experts: Sequence[GatedMLP | SquaredMLP]) -> ExpertSet:
        """All experts of a layer, as they are applied."""
        return networks.experts.crowd_of(experts)

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, ...]]:
        return self.checkpoint.shape.tensors()

    def _stacked(self, names: Sequence[str]) -> Tensor:
        if len(names) == 1:
            return self.tensor(names[0])
        sizes = self._sizes
        rows = sum(sizes[name][0] for name in names)
        whole = torch.empty(rows, *sizes[names[0]][1:], dtype=self.dtype, device=self.device)
        end = 0
        for name in names:
            start, end = end, end + sizes[name][0]
            whole[start:end] = self.checkpoint.tensor(name, self.dtype)
        return whole

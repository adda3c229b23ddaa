"""What the readers of drafters share: names, the shape of layers, numbers of hidden states, and checked tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ...core.errors import BadModel
from ..config import PLAIN, shape_of
from ..config_fields import ConfigFields
from ..shape import Shape
from .description import DrafterFile, DrafterSpec, check_sizes, needed, optional
from .stored_drafter import StoredDrafter, absolute_ids

MOST_BLOCK = 256
_MOST_LAYERS = 64
CONVOLUTIONS = ("attention_conv", "mlp_conv")
_UNKNOWN = ("kv_a_proj_with_mqa", "kv_b_proj", "mlp.gate.", "experts", "indexer", *CONVOLUTIONS)


class Named:
    """The tensors of a file under plain names: without `model.`, and EAGLE's only layer as layer 0."""

    def __init__(self, stored: StoredDrafter) -> None:
        self.stored = stored
        self._theirs = {self._plain(name): name for name in stored.names()}

    @staticmethod
    def _plain(name: str) -> str:
        return name.removeprefix("model.").replace("midlayer.", "layers.0.", 1)

    def __contains__(self, name: str) -> bool:
        return name in self._theirs

    def __iter__(self) -> Iterator[str]:
        return iter(self._theirs)

    def size(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor."""
        return self.stored.size(self._theirs[name])

    def length(self, name: str, along: int = 0) -> int:
        """The length of a tensor along one dimension; BadModel if it is not there, or is a single number."""
        size = self.size(name) if name in self else ()
        if not size:
            raise BadModel(
                f"{self.stored.source}: has no {name!r} with rows. The file is incomplete; download it again."
            )
        return size[along]

    def tensors(self, names: Mapping[str, str]) -> dict[str, torch.Tensor]:
        """Those that are there, by our names: `names` maps ours to plain ones."""
        return self.stored.renamed({ours: self._theirs[plain] for ours, plain in names.items() if plain in self})


def fields_of(stored: StoredDrafter, nested: str | None = None) -> ConfigFields:
    """The settings of a drafter, or a group of them."""
    source = str(stored.folder / "config.json")
    fields = ConfigFields(stored.config, source)
    return fields if nested is None else fields.within(nested) or ConfigFields({}, f"{source}: {nested}")


def layer_shape(
    config: Mapping[str, object],
    source: str,
    named: Named,
    target: Shape,
    at: str = "layers.0.",
    known: Sequence[str] = (),
) -> Shape:
    """The shape of a drafter's own layers; which biases and norms they have is told by the tensors that are there.

    Its vocabulary must be the target's; its context is, since rotary positions go on. `known` are parts that only some
    kinds of drafters have, and this one.
    """
    strange = [part for part in _UNKNOWN if part not in known]
    odd = sorted({part for name in named for part in strange if name.startswith(at) and part in name})
    if odd:
        raise BadModel(
            f"{source}: its layers have {', '.join(odd)}, which the native runtime does not do in a drafter."
        )
    family = config.get("model_type")
    told: dict[str, object] = {"max_position_embeddings": target.context, "vocab_size": target.vocab, **config}
    told["model_type"] = family if family in PLAIN else "llama"
    windows = _windows(ConfigFields(told, source))
    for name in ("layer_types", "use_sliding_window", "sliding_window", "quantization_config", "partial_rotary_factor"):
        told.pop(name, None)
    told["sliding_window"] = None
    shape = shape_of(ConfigFields(told, source))
    if shape.layers > _MOST_LAYERS:
        raise BadModel(f"{source}: has {shape.layers} layers; a drafter has at most {_MOST_LAYERS}.")
    if shape.vocab != target.vocab:
        raise BadModel(
            f"{source}: was trained for a vocabulary of {shape.vocab} tokens, and the target has {target.vocab}; "
            "a drafter guesses the target's own tokens. Use the one that belongs to this model."
        )
    return replace(
        shape,
        windows=windows or shape.windows,
        context=max(shape.context, target.context),
        qkv_bias=f"{at}self_attn.q_proj.bias" in named,
        out_bias=f"{at}self_attn.o_proj.bias" in named,
        mlp_bias=f"{at}mlp.gate_proj.bias" in named,
        qk_norm=f"{at}self_attn.q_norm.weight" in named,
        tied=False,
    )


def _windows(fields: ConfigFields) -> tuple[int | None, ...]:
    kinds, window = fields.get("layer_types"), fields.get("sliding_window")
    if not isinstance(kinds, list) or not isinstance(window, int):
        return ()
    layers = fields.whole("num_hidden_layers")
    if len(kinds) != layers:
        raise fields.fail("layer_types", f"a list of {layers} layer types")
    width = fields.whole("sliding_window")
    return tuple(width if kind == "sliding_attention" else None for kind in kinds)


def bare_shape(family: str, target: Shape, dim: int) -> Shape:
    """The shape of a drafter that has no layers of its own."""
    return replace(
        target, family=family, layers=0, dim=dim, windows=(), mixture=None, filling=None, post_norms=False, tied=False
    )


def state_numbers(given: object, source: str, target: Shape, shift: int = 0) -> tuple[int, ...] | None:
    """Which hidden states are read; `shift` is 1 where the file counts outputs of layers. None if it does not say."""
    if given is None:
        return None
    listed = isinstance(given, list) and 0 < len(given) <= target.layers + 1
    if not listed or not all(isinstance(n, int) and not isinstance(n, bool) for n in given):  # type: ignore[attr-defined]
        raise BadModel(f"{source}: the layers it reads are {given!r:.80}; expected a list of layer numbers.")
    return checked_numbers([n + shift for n in given], source, target)  # type: ignore[attr-defined]


def checked_numbers(numbers: Sequence[int], source: str, target: Shape) -> tuple[int, ...]:
    """The same numbers, if the target has such hidden states."""
    if min(numbers) < 0 or max(numbers) > target.layers:
        raise BadModel(
            f"{source}: reads hidden states {', '.join(map(str, numbers))}, and the target has 0 to {target.layers}. "
            "It was trained for another model."
        )
    return tuple(numbers)


def assembled(
    spec: DrafterSpec,
    named: Named,
    names: Mapping[str, str],
    target: Shape,
    more: Mapping[str, tuple[int, ...]] | None = None,
) -> DrafterFile:
    """The drafter with its tensors, all of whose shapes have been compared with what they must be.

    `names` maps our names to those of the file, where they differ; `more` are shapes that only this kind has.
    """
    source, all_of = named.stored.source, needed(spec) | dict(more or {})
    names = {**{name: name for name in all_of if name.startswith("layers.")}, **names}
    held = {ours: plain for ours, plain in names.items() if plain in named}
    sizes = {ours: named.size(plain) for ours, plain in held.items()}
    drafted = sizes["ids"][0] if "ids" in sizes and len(sizes["ids"]) == 1 else target.vocab
    check_sizes(source, spec.kind, sizes, all_of, all_of=True)
    check_sizes(source, spec.kind, sizes, optional(spec, target.vocab, drafted), all_of=False)
    layered = spec.join not in ("heads", "recurrent")  # which have a head for every token ahead
    if layered and spec.shape.dim != target.dim and not {"embed.weight", "head.weight"} <= set(held):
        raise BadModel(
            f"{source}: is {spec.shape.dim} wide and its target {target.dim}, and it has no embeddings and head of its "
            "own, so that it cannot use the target's. It was trained for another model."
        )
    if layered and drafted != target.vocab and "head.weight" not in held:
        raise BadModel(f"{source}: guesses {drafted} of the target's tokens but has no head (lm_head.weight) for them.")
    tensors = named.tensors(held)
    if "ids" in tensors:
        mask = tensors.pop("known", None)
        if mask is not None and mask.numel() != target.vocab:
            raise BadModel(
                f"{source}: its table t2d has {mask.numel()} rows and the target {target.vocab} tokens; "
                "the drafter belongs to another vocabulary."
            )
        tensors["ids"] = absolute_ids(source, tensors["ids"], mask, target.vocab, layered)
    elif "known" in tensors:
        del tensors["known"]
    return DrafterFile(spec, tensors, source)


OWN = {
    "embed.weight": "embed_tokens.weight",
    "head.weight": "lm_head.weight",
    "norm.weight": "norm.weight",
    "ids": "d2t",
    "known": "t2d",
}

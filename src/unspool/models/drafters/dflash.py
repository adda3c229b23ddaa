"""DFlash, DSpark and JetSpec's causal head: a block of masks that sees the target's states as keys and values."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import BadModel
from ..config_fields import ConfigFields
from ..shape import Shape
from .description import DrafterFile, DrafterSpec
from .reading import MOST_BLOCK, OWN, Named, assembled, checked_numbers, fields_of, layer_shape, state_numbers
from .stored_drafter import StoredDrafter

_MOST_RANK = 1 << 14
_HEADS = ("vanilla", "gated", "rnn")


def read_dflash(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """DFlash (2602.06036) with its Markov head where it is DSpark (2607.05147), as z-lab and `speculators` write them.

    z-lab's files count outputs of layers, those of `speculators` hidden states. In z-lab's form every place of a
    DSpark block guesses, the last known token's too, unless it says otherwise; in a plain DFlash only masks do.
    """
    spec = described(stored, named, target)
    names = names_of(named) | _markov_names(spec.markov)
    return assembled(spec, named, names, target, _markov_sizes(named, spec, target))


def names_of(named: Named) -> dict[str, str]:
    """Our names of what all block drafters have, and the file's."""
    names = {**OWN, "fuse.weight": "fc.weight", "state_norm.weight": "hidden_norm.weight"}
    for old, ours in (("encoder.fc.weight", "fuse.weight"), ("encoder.output_norm_enc.weight", "state_norm.weight")):
        if old in named:
            names[ours] = old
    return names


def described(stored: StoredDrafter, named: Named, target: Shape, known: Sequence[str] = ()) -> DrafterSpec:
    """What the settings and tensors of a block drafter say; `known` are parts of layers that its kind has besides."""
    source, fields, group = stored.source, fields_of(stored), fields_of(stored, "dflash_config")
    theirs = fields.text("speculators_model_type", "")
    config = dict(fields_of(stored, "transformer_layer_config").values) if theirs else stored.config
    config.setdefault("model_type", "qwen3")
    shape = layer_shape(config, source, named, target, known=known)
    states = (
        state_numbers(fields.get("aux_hidden_state_layer_ids"), source, target)
        or state_numbers(either("target_layer_ids", group, fields), source, target, shift=1)
        or _spread(named, source, target)
    )
    block = group.whole("block_size", fields.whole("block_size", 8))
    if block > MOST_BLOCK:
        raise BadModel(f"{source}: its block has {block} places; expected at most {MOST_BLOCK}.")
    markov = _markov(named, group, fields)
    told = either("sample_from_anchor", group, fields)
    anchored = bool(told) if told is not None else markov is not None and not theirs
    jet = bool(group.get("causal_head")) or bool(group.get("causal"))
    windows_causal = not fields.flag("sliding_window_non_causal", bool(group.get("use_swa")))
    spec = DrafterSpec(
        "DSpark" if markov else "JetSpec" if jet else "DFlash",
        states,
        shape,
        "context",
        target.dim,
        block=block,
        mask=_mask(either("mask_token_id", group, fields), fields, target),
        anchored=anchored,
        causal=jet,
        causal_windows=windows_causal,
        markov=markov,
        depth=block if anchored else block - 1,
    )
    if spec.depth == 0:
        raise BadModel(f"{source}: a block of one place, which does not guess, can draft nothing.")
    return spec


def either(name: str, group: ConfigFields, fields: ConfigFields) -> object:
    """A setting of the group, or else of the file."""
    return fields.get(name) if group.get(name) is None else group.get(name)


def _spread(named: Named, source: str, target: Shape) -> tuple[int, ...]:
    """The layers that are read where the file does not say: as many as the matrix has room for, evenly spread."""
    wide = named.length("fc.weight", -1) if "fc.weight" in named else 0
    count, rest = divmod(wide, target.dim)
    if rest or not 1 <= count <= target.layers:
        raise BadModel(
            f"{source}: fc.weight reads {wide} numbers, which is no multiple of the target's width {target.dim}; "
            "the drafter was trained for another model, or the file is damaged."
        )
    steps = (
        [round(1 + i * (target.layers - 4) / (count - 1)) for i in range(count)] if count > 1 else [target.layers // 2]
    )
    return checked_numbers([step + 1 for step in steps], source, target)


def _mask(given: object, fields: ConfigFields, target: Shape) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < target.vocab:
        raise fields.fail("mask_token_id", f"a token of the target, 0 to {target.vocab - 1}")
    return given


def _markov(named: Named, group: ConfigFields, fields: ConfigFields) -> str | None:
    if "markov_head.markov_w1.weight" not in named:
        return None
    kind = either("markov_head_type", group, fields)
    kind = "vanilla" if kind is None else kind
    if kind not in _HEADS:
        raise fields.fail("markov_head_type", f"one of {', '.join(_HEADS)}")
    return str(kind)


def _markov_names(markov: str | None) -> dict[str, str]:
    if markov is None:
        return {}
    parts = {"vanilla": (), "gated": ("gate_proj",), "rnn": ("joint_proj",)}[markov]
    extra = {f"markov.{part}.{end}": f"markov_head.{part}.{end}" for part in parts for end in ("weight", "bias")}
    return {"markov.w1": "markov_head.markov_w1.weight", "markov.w2": "markov_head.markov_w2.weight", **extra}


def _markov_sizes(named: Named, spec: DrafterSpec, target: Shape) -> dict[str, tuple[int, ...]]:
    if spec.markov is None:
        return {}
    dim, drafted = spec.shape.dim, named.length("d2t") if "d2t" in named else target.vocab
    rank = named.length("markov_head.markov_w1.weight", -1)
    if not 1 <= rank <= _MOST_RANK:
        raise BadModel(f"{named.stored.source}: its Markov head has rank {rank}; expected 1 to {_MOST_RANK}.")
    sizes: dict[str, tuple[int, ...]] = {"markov.w1": (target.vocab, rank), "markov.w2": (drafted, rank)}
    if spec.markov == "gated":
        sizes |= {"markov.gate_proj.weight": (rank, dim + rank), "markov.gate_proj.bias": (rank,)}
    if spec.markov == "rnn":
        sizes |= {"markov.joint_proj.weight": (3 * rank, 2 * rank + dim), "markov.joint_proj.bias": (3 * rank,)}
    return sizes

"""EAGLE-1, EAGLE-2, EAGLE-3 in its dialects, EAGLE-3.1 and P-EAGLE: one layer, or a few, in feature space."""

from __future__ import annotations

from ...core.errors import BadModel
from ..shape import Shape
from .description import DrafterFile, DrafterSpec
from .reading import MOST_BLOCK, OWN, Named, assembled, checked_numbers, fields_of, layer_shape, state_numbers
from .stored_drafter import StoredDrafter

SPOKEN = 8  # tokens that P-EAGLE guesses unless its settings say


def read_eagle1(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """EAGLE-1 and EAGLE-2 (2401.15077, 2406.16858; HASS has the same layout).

    fc·[e(x_{i+1}); f_i] goes through one layer without a norm at its entry, and the target's head reads what comes
    out, with no norm between. f is what leaves the target's last norm.
    """
    shape = layer_shape(stored.config, stored.source, named, target)
    entry = "layers.0.input_layernorm.weight" in named
    spec = DrafterSpec("EAGLE-1/2", (target.layers,), shape, "project", target.dim, entry_norm=entry)
    return assembled(spec, named, {**OWN, "join.weight": "fc.weight", "join.bias": "fc.bias"}, target)


def read_eagle3(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """EAGLE-3 (2503.01840), EAGLE-3.1 and P-EAGLE, as SafeAILab, SpecForge, ModelOpt and `speculators` write them.

    SafeAILab and SpecForge have the layer's settings at the top and count outputs of layers (`eagle_config`);
    `speculators` nests them in `transformer_layer_config` and counts hidden states. Where a file does not say whether
    the residual is normed, it is not; where it does not say which layers are read, they are 2, L/2 and L − 3.
    """
    fields, source = fields_of(stored), stored.source
    theirs = fields.text("speculators_model_type", "")
    layer = fields_of(stored, "transformer_layer_config")
    config = dict(layer.values) if theirs else stored.config
    if theirs:
        config.setdefault("model_type", "qwen3")
    shape = layer_shape(config, source, named, target)
    wide = fields.whole("target_hidden_size", target.dim)
    if wide != target.dim:
        raise BadModel(
            f"{source}: reads hidden states {wide} wide, and the target's are {target.dim}. It belongs to another."
        )
    nested = fields_of(stored, "eagle_config")
    states = (
        state_numbers(fields.get("eagle_aux_hidden_state_layer_ids"), source, target)
        or state_numbers(nested.get("eagle_aux_hidden_state_layer_ids"), source, target, shift=1)
        or checked_numbers([2, target.layers // 2, target.layers - 3], source, target)
    )
    parallel = theirs == "peagle" or "mask_hidden" in named
    normed = fields.flag("norm_output", nested.flag("norm_output"))
    kind = "P-EAGLE" if parallel else "EAGLE-3.1" if normed or "fc_norm.0.weight" in named else "EAGLE-3"
    spec = DrafterSpec(
        kind,
        states,
        shape,
        "attend",
        target.dim,
        residual_normed=fields.flag("norm_before_residual", nested.flag("norm_before_residual")),
        recycles_normed=normed,
        block=_spoken(stored) if parallel else 0,
        mask=_mask(stored, target) if parallel else None,
    )
    names = {
        **OWN,
        "fuse.weight": "fc.weight",
        "fuse.bias": "fc.bias",
        "fuse_norm.weight": "input_norm.weight",
        "state_norm.weight": "layers.0.hidden_norm.weight",
        "mask_state": "mask_hidden",
    }
    chunks = ("low", "mid", "high")
    for n in range(len(states)):
        old = f"aux_norm_{chunks[n]}.weight" if n < len(chunks) else ""
        names[f"fuse_norm.{n}.weight"] = old if old in named else f"fc_norm.{n}.weight"
    if "mask_hidden" in named and named.size("mask_hidden") != (target.dim * len(states),):
        return _flat_mask(assembled(spec, named, names, target, {"mask_state": named.size("mask_hidden")}), stored)
    return assembled(spec, named, names, target)


def _flat_mask(file: DrafterFile, stored: StoredDrafter) -> DrafterFile:
    """The state of a mask as one row, where the file has it in a matrix of one."""
    flat, wide = file.tensors["mask_state"].flatten(), file.spec.wide * len(file.spec.states)
    if flat.shape != (wide,):
        raise BadModel(f"{stored.source}: mask_hidden has {flat.shape[0]} numbers; expected {wide}, one per state.")
    return DrafterFile(file.spec, {**file.tensors, "mask_state": flat}, file.source)


def _mask(stored: StoredDrafter, target: Shape) -> int:
    fields = fields_of(stored)
    mask = fields.get("mask_token_id") if fields.get("mask_token_id") is not None else fields.get("pard_token")
    if not isinstance(mask, int) or isinstance(mask, bool) or not 0 <= mask < target.vocab:
        raise fields.fail("mask_token_id", f"a token of the target, 0 to {target.vocab - 1}")
    return mask


def _spoken(stored: StoredDrafter) -> int:
    """How many tokens a drafter is made to guess at once."""
    told = fields_of(stored, "speculators_config").get("proposal_methods")
    first = told[0] if isinstance(told, list) and told and isinstance(told[0], dict) else {}
    count = first.get("speculative_tokens", SPOKEN)
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_BLOCK:
        raise BadModel(f"{stored.source}: speculative_tokens is {count!r:.40}; expected 1 to {MOST_BLOCK}.")
    return count

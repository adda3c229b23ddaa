"""DFlash2: a block of masks whose places see those before them by convolutions, and whose guesses form a lattice."""

from __future__ import annotations

import math
from dataclasses import replace

from ...core.errors import BadModel
from ..config_fields import ConfigFields
from ..shape import Shape
from .description import DrafterFile, selector_tensors
from .dflash import described, either, names_of
from .reading import CONVOLUTIONS, Named, assembled, fields_of
from .stored_drafter import StoredDrafter

SELECTOR = {
    "selector.before": "candidate_selector.predecessor_codebook",
    "selector.after": "candidate_selector.successor_codebook",
    "selector.state.weight": "candidate_selector.hidden_projection.weight",
}
MOST_TAPS, MOST_RANK, MOST_CANDIDATES = 16, 1 << 12, 256


def read_dflash2(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """DFlash2 as `speculators` 0.9 and vLLM have it: settings in `dflash_config`, codebooks of all tokens."""
    fields, group, source = fields_of(stored), fields_of(stored, "dflash_config"), stored.source
    spec = described(stored, named, target, CONVOLUTIONS)
    dim = spec.shape.dim
    taps = _whole("conv_kernel_size", group, fields, 2, MOST_TAPS)
    each = _whole("conv_group_size", group, fields, 16, dim)
    if dim % each:
        raise BadModel(f"{source}: conv_group_size is {each}, which does not divide its width {dim}.")
    rank = _whole("selector_rank", group, fields, 256, MOST_RANK)
    spec = replace(
        spec,
        kind="DFlash2",
        lattice=_whole("selector_top_k", group, fields, 16, MOST_CANDIDATES),
        taps=taps,
        groups=dim // each,
        embed_scale=_real("input_embedding_scale", group, fields) or 1.0,
        logit_scale=_real("output_multiplier", group, fields) or 1.0,
        logit_cap=_real("final_logit_softcapping", group, fields),
    )
    names = names_of(named) | SELECTOR
    return assembled(spec, named, names, target, selector_tensors(target.vocab, rank, dim))


def _whole(name: str, group: ConfigFields, fields: ConfigFields, usual: int, most: int) -> int:
    found = either(name, group, fields)
    found = usual if found is None else found
    if not isinstance(found, int) or isinstance(found, bool) or not 1 <= found <= most:
        raise fields.fail(name, f"a whole number from 1 to {most}")
    return found


def _real(name: str, group: ConfigFields, fields: ConfigFields) -> float | None:
    found = either(name, group, fields)
    if found is None:
        return None
    if not isinstance(found, (int, float)) or isinstance(found, bool) or not 0 < found < math.inf:
        raise fields.fail(name, "a number above 0")
    return float(found)

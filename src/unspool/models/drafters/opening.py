"""Open a drafter: tell which kind a folder or file holds, and read it for its target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ...core.errors import BadModel
from ...core.files import MODEL, read_text
from ..gguf import GGUF
from ..shape import Shape
from .description import DrafterFile
from .dflash import read_dflash
from .dflash2 import read_dflash2
from .eagle import read_eagle1, read_eagle3
from .forms import MODEL_TYPE, read_form
from .heads_files import read_medusa, read_mlp_speculator
from .mtp import layout_of, read_mtp
from .reading import Named
from .stored_drafter import StoredDrafter

Reader = Callable[[StoredDrafter, Named, Shape], DrafterFile]

SPECULATORS: Mapping[str, Reader] = {
    "eagle3": read_eagle3,
    "peagle": read_eagle3,
    "dflash": read_dflash,
    "dspark": read_dflash,
    "dflash2": read_dflash2,
    "mtp": read_mtp,
}
_GGUF = ("eagle3", "dflash", "gemma4-assistant")
_PARTS = ("refiner_head", "embed_proj.weight_ih", "hidden_correction")


def is_drafter(path: Path) -> bool:
    """Whether a path holds a trained drafter, and no model that could write by itself; unreadable ones are neither."""
    try:
        if path.suffix == ".gguf":
            return GGUF(path).metadata.get("general.architecture") in _GGUF
        stored = _stored(path)
        return stored is not None and _reader(stored, Named(stored)) is not None
    except BadModel:
        return (path / "config.json").is_file() and _looks_like_one(path)


def open_drafter(path: Path, target: Shape) -> DrafterFile:
    """The drafter that a folder or a .safetensors file beside its config.json holds, for a target of this shape."""
    stored = _stored(path)
    if stored is None and path.suffix == ".gguf":
        raise BadModel(
            f"{path}: drafters in GGUF files cannot be read yet. Give the folder of safetensors it was made of."
        )
    if stored is None:
        raise BadModel(f"{path}: holds no drafter; expected a folder with config.json and *.safetensors.")
    named = Named(stored)
    reader = _reader(stored, named)
    if reader is None:
        raise BadModel(
            f"{path}: is no drafter that can be read: EAGLE-1/2/3/3.1, P-EAGLE, DFlash, DFlash2, DSpark, JetSpec, MTP, "
            "Medusa, MLP speculators."
        )
    return reader(stored, named, target)


def open_native(path: Path, target: Shape) -> DrafterFile:
    """The multi-token prediction module inside the target's own folder."""
    stored = _stored(path)
    if stored is None:
        raise BadModel(f"{path}: a module that predicts several tokens is read from a folder of safetensors.")
    return read_mtp(stored, Named(stored), target)


def _stored(path: Path) -> StoredDrafter | None:
    folder = path if path.is_dir() else path.parent
    if path.suffix == ".gguf" or not (folder / "config.json").is_file():
        return None
    return StoredDrafter(path)


def _reader(stored: StoredDrafter, named: Named) -> Reader | None:
    config = stored.config
    theirs = config.get("speculators_model_type")
    if theirs is not None:
        if not isinstance(theirs, str) or theirs not in SPECULATORS:
            known = ", ".join(SPECULATORS)
            raise BadModel(f"{stored.source}: its kind is {theirs!r:.40}, which cannot be read; these can: {known}.")
        return SPECULATORS[theirs]
    strange = sorted({part for name in named for part in _PARTS if part in name})
    if strange:
        raise BadModel(f"{stored.source}: has {', '.join(strange)}, parts of a drafter that cannot be read yet.")
    told = " ".join(map(str, _listed(config.get("architectures")))) + f" {config.get('model_type')}"
    if config.get("model_type") == MODEL_TYPE:
        return read_form
    if "mlp_speculator" in told.lower() or "MLPSpeculator" in told:
        return read_mlp_speculator
    if "medusa" in told.lower() or "medusa_num_heads" in config:
        return read_medusa
    if any(name.startswith("candidate_selector.") for name in named):
        return read_dflash2
    if "dflash_config" in config or "DFlash" in told or "DSpark" in told:
        return read_dflash
    if "fc.weight" in named:
        if "layers.0.hidden_norm.weight" in named:
            return read_eagle3
        return read_dflash if "hidden_norm.weight" in named else read_eagle1
    if "Eagle" in told:
        return read_eagle3 if "Eagle3" in told else read_eagle1
    whole = "embed_tokens.weight" in named and "layers.0.input_layernorm.weight" in named
    return read_mtp if not whole and layout_of(named, 0) is not None else None


def _looks_like_one(path: Path) -> bool:
    """Whether settings say that it is a drafter whose tensors are not read as one, so that the reason is told."""
    try:
        text = read_text(path / "config.json", MODEL)
    except (OSError, ValueError):
        return False
    return any(
        word in text for word in ("speculators_model_type", "Eagle", "dflash", "medusa", "mlp_speculator", MODEL_TYPE)
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []

"""Trained drafters for a loaded model: found by their path, read, and attached to the hidden states they read."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import BadRequest
from ..models.address import path
from ..models.drafters import opening
from ..models.drafters.description import DrafterFile
from ..models.shape import Shape
from ..runtime.cache.cached_model import CachedModel
from ..runtime.drafter.drafter_model import TrainedDrafter, network_of
from ..runtime.engine.contracts import LAST
from ..runtime.network.llama import Llama

NATIVE = "mtp"  # the name of the module inside the model's own checkpoint
SPARE = 1024  # slots for drafts besides those of texts


def is_trained(name: str | Path) -> bool:
    """Whether what is named as a draft model is a drafter that reads the target's hidden states."""
    if str(name) == NATIVE:
        return True
    here = Path(name).expanduser()
    return here.exists() and opening.is_drafter(here)


def trained_for(model: object, name: str, drafter: str | Path) -> TrainedDrafter:
    """The drafter of this path for a loaded model; from now on the model notes the states that it reads."""
    if not isinstance(model, CachedModel) or not isinstance(model.network, Llama) or model.network.shape.filling:
        raise BadRequest(
            f"draft={str(drafter)!r} reads hidden states of {name}, which needs the native runtime, one rank, and a "
            "model that only reads."
        )
    return attached(model, opened(name, drafter, model.network.shape))


def opened(name: str, drafter: str | Path, shape: Shape) -> DrafterFile:
    """The file of a drafter for the model of this name and shape."""
    if str(drafter) == NATIVE:
        return opening.open_native(path(name), shape)
    return opening.open_drafter(Path(drafter).expanduser(), shape)


def attached(model: CachedModel, file: DrafterFile) -> TrainedDrafter:
    """The drafter of a file for a model, which notes what it reads."""
    network = model.network
    assert isinstance(network, Llama)
    model.forget()  # texts that were read before it have no states
    last = network.layers
    numbers = [LAST if number == last else number for number in file.spec.states]
    network.slots.keep_states(numbers, network.ends.embedding)
    return TrainedDrafter(network_of(file, network.ends, network.slots.room + SPARE), model)

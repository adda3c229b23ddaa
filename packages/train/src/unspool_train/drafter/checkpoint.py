"""A drafter in the middle of its training: weights, the optimiser's moments, and how far it is, in one safetensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unspool.core.errors import BadRequest

from .muon import Muon

CHECKPOINT = "drafter.checkpoint"


@dataclass
class Progress:
    """How far training is: steps and tokens, and the seconds that were spent on them."""

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0


def save(folder: Path, tensors: Mapping[str, Tensor], optimiser: torch.optim.Optimizer, progress: Progress) -> None:
    """Write a checkpoint in place of the one before."""
    kept = {f"weights.{name}": tensor for name, tensor in tensors.items()}
    for name, tensor in tensors.items():
        moments = optimiser.state.get(tensor, {})
        kept |= {f"{moment}.{name}": moments[moment] for moment in ("exp_avg", "exp_avg_sq") if moment in moments}
    partial = folder / f"{CHECKPOINT}.part"
    told = {name: str(value) for name, value in asdict(progress).items()}
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in kept.items()}, partial, metadata=told)
    partial.replace(folder / CHECKPOINT)


def resume(folder: Path, tensors: Mapping[str, Tensor], optimiser: torch.optim.Optimizer) -> Progress:
    """Fill tensors and optimiser from a checkpoint; one of another drafter is refused."""
    file = folder / CHECKPOINT
    if not file.is_file():
        raise BadRequest(f"--resume: {file} is not there. Leave --resume out to begin anew.")
    try:
        with safe_open(file, framework="pt") as stored:
            told, names = stored.metadata(), set(stored.keys())
            held = {name: stored.get_tensor(name) for name in names}
    except (SafetensorError, OSError) as error:
        raise BadRequest(f"--resume: {file} cannot be read ({error}). Leave --resume out to begin anew.") from error
    theirs = {name.removeprefix("weights."): held[name].shape for name in names if name.startswith("weights.")}
    if theirs != {name: tensor.shape for name, tensor in tensors.items()}:
        raise BadRequest(f"--resume: {file} holds another drafter. Give the options that it was begun with.")
    progress = Progress(int(told["steps"]), int(told["tokens"]), float(told["seconds"]))
    for name, tensor in tensors.items():
        with torch.no_grad():
            tensor.copy_(held[f"weights.{name}"])
        if f"exp_avg.{name}" in held:
            kept = [moment for moment in ("exp_avg", "exp_avg_sq") if f"{moment}.{name}" in held]
            moments = {moment: held[f"{moment}.{name}"].to(tensor) for moment in kept}
            optimiser.state[tensor] = {"step": torch.tensor(float(progress.steps)), **moments}
            if tensor.is_cuda and not isinstance(optimiser, Muon):  # whose steps are counted on the host
                optimiser.state[tensor]["step"] = optimiser.state[tensor]["step"].to(tensor.device)
    return progress

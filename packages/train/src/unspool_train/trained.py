"""The weights under training, in one of two forms: every weight free, or the base plus trained factors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from .delta_compression import Delta, Factors, factorised, read_delta
from .training_network import is_matrix

CHECKPOINT = "weights.checkpoint"


class Trained:
    """Weights with gradients; `fold` goes over from the first form to the second."""

    def __init__(self, start: Mapping[str, Tensor]) -> None:
        self.base: Mapping[str, Tensor] = {}
        self.free = {name: value.detach().float().clone().requires_grad_() for name, value in start.items()}
        self.factors: dict[str, Factors] = {}

    @property
    def folded(self) -> bool:
        """Whether matrices are the base plus factors."""
        return bool(self.base)

    def fold(self, base: Mapping[str, Tensor], delta: Delta) -> None:
        """Go over to the second form: matrices are base + factors from here on."""
        self.base = base
        device = base["norm"].device
        self.factors = {
            name: Factors(*(part.to(device).clone().requires_grad_() for part in (factors.left, factors.right)))
            for name, factors in delta.factors.items()
        }
        self.free = {name: value for name, value in self.free.items() if not is_matrix(name)}

    def parameters(self) -> list[Tensor]:
        """What the optimiser moves."""
        return [*self.free.values(), *(part for f in self.factors.values() for part in (f.left, f.right))]

    def weights(self) -> dict[str, Tensor]:
        """All weights as the network wants them, with their gradients' way back."""
        if not self.folded:
            return dict(self.free)
        whole = {name: value for name, value in self.base.items() if is_matrix(name)}
        whole |= {name: self.base[name] + factors.product() for name, factors in self.factors.items()}
        return whole | self.free

    def plain(self) -> dict[str, Tensor]:
        """All weights, without gradients."""
        return {name: value.detach() for name, value in self.weights().items()}

    def delta(self, base: Mapping[str, Tensor], budget: int) -> Delta:
        """The change in the form it is stored, in at most `budget` bytes."""
        if self.folded:
            factors = {name: Factors(f.left.detach(), f.right.detach()) for name, f in self.factors.items()}
            return Delta(factors, {name: value.detach() for name, value in self.free.items()})
        return factorised(self.plain(), base, budget)


def begun(source: str, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights to begin with: those of an interrupted run, or the start with a delta applied."""
    path = Path(source) / CHECKPOINT if Path(source).is_dir() else Path(source)
    device = str(start["norm"].device)
    if path.name == CHECKPOINT and path.is_file():
        return load_file(path, device=device)
    return read_delta(source, device).applied(start)


def keep(weights: Mapping[str, Tensor], path: Path) -> None:
    """Write whole weights, in place of those written before."""
    partial = path.with_name(path.name + ".part")
    save_file({name: value.cpu().contiguous() for name, value in weights.items()}, partial)
    partial.replace(path)

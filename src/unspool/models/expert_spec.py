"""A mixture of experts: how many perceptrons stand in the place of one, and how each token chooses among them."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import BadModel


@dataclass(frozen=True)
class ExpertSpec:
    """What fixes a layer whose perceptron is split into `count` experts, of which a token uses `active`.

    The experts stand in `groups` of neighbours, of which a token may use `open` ones. A bias per expert, if `biased`,
    moves the choice and never the weights; these are divided by their sum if `normed`, and multiplied by `scale`. The
    expert that every token uses has a hidden width of `shared`, 0 if there is none; the others have `hidden`. The first
    `dense` layers keep their one perceptron. `runtime.network.experts` has the formula.
    """

    count: int
    active: int
    hidden: int
    shared: int = 0
    groups: int = 1
    open: int = 1
    biased: bool = True
    normed: bool = True
    scale: float = 1.0
    dense: int = 0

    def __post_init__(self) -> None:
        each = self.count // self.groups
        problems = (
            (self.count % self.groups, f"{self.count} experts cannot be cut into {self.groups} equal groups"),
            (
                self.groups > 1 and each < 2,
                f"{self.groups} groups of one expert, but two are needed to judge one",
            ),
            (self.open > self.groups, f"a token may use {self.open} groups of {self.groups}"),
            (
                self.active > self.open * each,
                f"a token uses {self.active} experts, of {self.open * each} it may",
            ),
        )
        for wrong, problem in problems:
            if wrong:
                raise BadModel(f"This mixture of experts cannot be built: {problem}. Its configuration is damaged.")

    def tensors(self, dim: int) -> dict[str, tuple[int, ...]]:
        """Return the name (within the perceptron) and the shape of every tensor of one such layer."""
        found: dict[str, tuple[int, ...]] = {"gate.weight": (self.count, dim)}
        if self.biased:
            found["gate.expert_bias"] = (self.count,)
        widths = {f"experts.{number}": self.hidden for number in range(self.count)}
        if self.shared:
            widths["shared_experts"] = self.shared
        for name, hidden in widths.items():
            found[f"{name}.gate_proj.weight"] = found[f"{name}.up_proj.weight"] = (hidden, dim)
            found[f"{name}.down_proj.weight"] = (dim, hidden)
        return found

    def width(self, dim: int) -> int:
        """How many numbers a token has at the widest place: what goes to its experts, comes from them and is summed."""
        return 3 * self.active * dim + 2 * max(self.hidden, self.shared)

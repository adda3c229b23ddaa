"""How the rows of a step are drawn: the plan of each one's warps, and the key of its random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from torch import Tensor

from ...core.chance import Chance, Philox
from ...core.reported_law import MOST
from ...core.warp.mask import Mask
from ...core.warp.warp import Prefix
from ...core.warp.warp_plan import WarpPlan, mask_of, plan_of
from .warp_stage import Shaping, fits

FEW = 5  # best tokens of most reports; each costs a round of a kernel


@dataclass(frozen=True)
class Sampling:
    """Plans, the sizes of prompts, and where chance comes from, row by row."""

    plans: list[WarpPlan]
    prompts: list[int]
    chances: Sequence[Chance]
    logprobs: int | None = None  # best tokens that somebody wants log-probabilities of; None: not even of the picked

    @staticmethod
    def of(prefixes: Sequence[Prefix], chances: Sequence[Chance], logprobs: int | None = None) -> Sampling | None:
        """That of some texts; None if one of them is drawn in a way that only the host knows."""
        plans = [plan for prefix in prefixes if (plan := device_plan(prefix)) is not None]
        if len(plans) < len(prefixes) or not all(isinstance(chance, Philox) for chance in chances):
            return None
        return Sampling(plans, [prefix.prompt for prefix in prefixes], chances, logprobs)

    @property
    def temperatures(self) -> list[float]:
        """0 for greedy."""
        return [plan.temperature for plan in self.plans]

    @property
    def seeds(self) -> list[int]:
        """As 64 bits with a sign."""
        seeds = [chance.seed if isinstance(chance, Philox) else 0 for chance in self.chances]
        return [seed - (1 << 64) if seed >> 63 else seed for seed in seeds]

    @property
    def streams(self) -> list[int]:
        """The stream of each row's random numbers."""
        return [chance.stream if isinstance(chance, Philox) else 0 for chance in self.chances]

    @cached_property
    def shaping(self) -> Shaping:
        """The kernels that all rows together need."""
        edits, truncates = any(plan.edits for plan in self.plans), any(plan.truncates for plan in self.plans)
        reports = 0 if self.logprobs is None else FEW if self.logprobs <= FEW else MOST
        return Shaping(edits, truncates, reports, any(plan.mask is not None for plan in self.plans))

    def without_masks(self) -> Sampling:
        """The same rows, each drawn as if it had no mask."""
        return replace(self, plans=[plan.unmasked for plan in self.plans])

    def rows(self, numbers: Sequence[int]) -> Sampling:
        """Some of the rows."""
        plans, prompts = [self.plans[i] for i in numbers], [self.prompts[i] for i in numbers]
        return Sampling(plans, prompts, [self.chances[i] for i in numbers], self.logprobs)


class StepMasks:
    """The masks of some nodes of a batch, by number, turn after turn."""

    def __init__(self, prefixes: Mapping[int, Prefix]) -> None:
        self._prefixes = prefixes
        self._asked: dict[int, tuple[Mask, Any]] = {}  # each mask with its state, as far as it was asked

    def fill(self, picked: Sequence[int], out: Tensor) -> None:
        """Put their bits into a host's rows of bytes, after what each text has picked last.

        Where that was nothing, no mask matters any more.
        """
        if not self._asked:
            self._asked = {node: mask_of(prefix) for node, prefix in self._prefixes.items()}
        for kind in {type(mask) for mask, _ in self._asked.values()}:
            alike = {node: each for node, each in self._asked.items() if type(each[0]) is kind}
            on = [node for node in alike if picked and picked[node] >= 0]
            stepped = kind.step_all([alike[node] for node in on], [picked[node] for node in on])
            alike.update((node, (alike[node][0], state)) for node, state in zip(on, stepped, strict=True))
            self._asked.update(alike)
            kind.fill(list(alike.values()), list(alike), out)


def device_plan(prefix: Prefix) -> WarpPlan | None:
    """The plan of a text's warps, if a device can carry it out."""
    plan = plan_of(prefix.warp)
    return plan if plan is not None and fits(plan) else None

"""How the rows of a step are drawn: the plan of each one's warps, and the key of its random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...core.chance import Chance, Philox
from ...core.reported_law import MOST
from ...core.warp.plan import WarpPlan, plan_of
from ...core.warp.warp import Prefix
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
        return self._shaping(self.plans, any(plan.mask is not None for plan in self.plans))

    @cached_property
    def unmasked(self) -> Shaping:
        """Those that they need without their masks."""
        return self._shaping([plan.unmasked for plan in self.plans], False) if self.shaping.masks else self.shaping

    def _shaping(self, plans: Sequence[WarpPlan], masks: bool) -> Shaping:
        edits, truncates = any(plan.edits for plan in plans), any(plan.truncates for plan in plans)
        reports = 0 if self.logprobs is None else FEW if self.logprobs <= FEW else MOST
        return Shaping(edits, truncates, reports, masks)

    def without_masks(self) -> Sampling:
        """The same rows, each drawn as if it had no mask."""
        return replace(self, plans=[plan.unmasked for plan in self.plans])

    def rows(self, numbers: Sequence[int]) -> Sampling:
        """Some of the rows."""
        plans, prompts = [self.plans[i] for i in numbers], [self.prompts[i] for i in numbers]
        return Sampling(plans, prompts, [self.chances[i] for i in numbers], self.logprobs)


def device_plan(prefix: Prefix) -> WarpPlan | None:
    """The plan of a text's warps, if a device can carry it out."""
    plan = plan_of(prefix.warp)
    return plan if plan is not None and fits(plan) else None

"""The warps of a batch on a device: what each row's plan does to its scores, between the forward and the pick."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...core.warp.warp_plan import WarpPlan
from ...kernels.edit import ALWAYS, NO_PENALTY, PENALTIES, SCOPE, Edits, edit
from ...kernels.truncate import CUTS, NONE, truncate
from .staging_buffer import StagingBuffer
from .text_lines import TextLine

EACH = 512  # biases, prohibitions and tokens of bad words that a row may have, of each kind


class Shaping(NamedTuple):
    """Which kernels run around the pick of a step, beside it: a graph has those that its rows need."""

    edits: bool = False
    truncates: bool = False
    reports: int = 0  # best tokens whose log-probabilities are noted, 0 if nobody asks for any
    masks: bool = False
    ranks: bool = False  # whether the best tokens of a step are noted, for the host to check


BARE = Shaping()


def fits(plan: WarpPlan) -> bool:
    """Whether the lists of a plan are short enough for a row."""
    return plan.longest_list <= EACH and plan.highest_token < ALWAYS


class WarpStage:
    """Buffers for the warps of so many rows, and the kernels that apply them."""

    def __init__(self, rows: int, padding: int, device: torch.device, nodes: int = 0, vocab: int = 0) -> None:
        self._nodes, self._octets, self._device = nodes or rows, 4 * -(-vocab // 32), device
        self._bits: tuple[Tensor, Tensor] | None = None  # masks on the host and on the device, made when first needed
        self._sent = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._room, self._padding = EACH * rows, padding
        whole, real = torch.int32, torch.float32
        self._staging = StagingBuffer(
            {
                "cuts": (torch.float64, (rows, CUTS)),
                "penalties": (real, (rows, PENALTIES)),
                "scope": (whole, (rows, SCOPE)),
                "line": (whole, (rows,)),
                "biases": (real, (self._room,)),
                **dict.fromkeys(
                    ("biased", "struck", "until", "starts", "sizes", "heads"), (whole, (self._room,))
                ),
            },
            device,
        )  # fmt: skip
        self._rows = rows
        self._last: list[tuple[int, int, int]] = []  # what was put last: plans, prompts and lines
        self._kept: Sequence[WarpPlan] = ()  # which stay while their ids stand for them

    def put(self, plans: Sequence[WarpPlan], prompts: Sequence[int], lines: Sequence[TextLine | None]) -> None:
        """Write what each row's plan is, if that is new; every plan fits."""
        numbers = [self._padding if line is None else line.number for line in lines]
        now = [(id(plan), prompt, number) for plan, prompt, number in zip(plans, prompts, numbers, strict=True)]
        if now == self._last:
            return
        penalties: list[float] = []
        cuts: list[float] = []
        scope: list[int] = []
        lists = _Lists([], [], [], [], [], [], [])
        for plan, prompt in zip(plans, prompts, strict=True):
            penalties += (plan.repetition, plan.frequency, plan.presence)
            cuts += _cuts(plan) if plan.truncates else NONE
            scope += (prompt, min(plan.no_repeat_ngram, ALWAYS), *lists.add(plan, prompt), plan.mask is not None)
        spare = self._rows - len(plans)
        staging = self._staging
        staging.wait()
        staging.put("penalties", [*penalties, *NO_PENALTY * spare])
        staging.put("cuts", [*cuts, *NONE * spare])
        staging.put("scope", scope)
        staging.put("line", numbers, self._padding)
        for name, numbers_ in lists._asdict().items():
            staging.begin(name, numbers_)
        staging.send()
        self._last, self._kept = now, plans

    def make_masks(self) -> None:
        """Make room for the masks of all nodes."""
        if self._bits is None:
            room = self._nodes, self._octets
            host = torch.zeros(room, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
            self._bits = host, torch.zeros(room, dtype=torch.uint8, device=self._device)

    def put_masks(self, fill: Callable[[Tensor], None]) -> None:
        """Send which tokens may follow some nodes, as bits that `fill` puts into their rows."""
        assert self._bits is not None
        host, device = self._bits
        if self._sent is not None:
            self._sent.synchronize()  # until the last masks have left
        fill(host)
        device.copy_(host, non_blocking=True)
        if self._sent is not None:
            self._sent.record()

    @property
    def lines(self) -> Tensor:
        """The line of each row's text."""
        return self._staging.on["line"]

    def shape(
        self,
        shaping: Shaping,
        scores: Tensor,
        texts: Tensor,
        ends: Tensor,
        temperature: Tensor,
        count: Tensor,
        tree: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """The scores as warps before the temperature leave them, and between which bars those after it keep them.

        `tree` are drafted tokens, parents and roots, where rows have several nodes.
        """
        on = self._staging.on
        if shaping.edits:
            bits = self._bits[1] if shaping.masks and self._bits is not None else None
            edits = Edits(on["penalties"], on["scope"], **{name: on[name] for name in _Lists._fields}, bits=bits)
            scores = edit(scores, edits, texts, on["line"], ends, count, *(tree or (None, None, None)))
        return scores, truncate(scores, temperature, on["cuts"], count) if shaping.truncates else None


class _Lists(NamedTuple):
    """The lists of all rows, one after the other."""

    biased: list[int]
    biases: list[float]
    struck: list[int]
    until: list[int]
    starts: list[int]
    sizes: list[int]
    heads: list[int]

    def add(self, plan: WarpPlan, prompt: int) -> tuple[int, int, int, int, int]:
        """Write down a plan's; where its biases and its strikes begin and end, and the longest head among these."""
        bias, strike = len(self.biased), len(self.struck)
        for token, value in plan.logit_bias:
            self.biased.append(token)
            self.biases.append(value)
        for token in plan.forbidden:
            self._strike(token, ALWAYS, ())
        for *head, token in plan.bad_words:
            self._strike(token, ALWAYS, head)
        for token in plan.ends if plan.min_tokens else ():
            self._strike(token, min(prompt + plan.min_tokens, ALWAYS), ())
        longest = max(self.sizes[strike:], default=0)
        return bias, len(self.biased), strike, len(self.struck), longest

    def _strike(self, token: int, until: int, head: Sequence[int]) -> None:
        self.struck.append(token)
        self.until.append(until)
        self.starts.append(len(self.heads))
        self.sizes.append(len(head))
        self.heads.extend(head)


def _cuts(plan: WarpPlan) -> tuple[float, ...]:
    """A plan's truncations as `truncate` takes them."""
    sigma = NONE[0] if plan.top_n_sigma is None else plan.top_n_sigma
    logs = (math.log(p) if p > 0 else -math.inf for p in (plan.min_p, plan.epsilon, plan.eta))
    min_p, epsilon, eta = logs
    return sigma, float(plan.top_k), plan.top_p, min_p, plan.typical, epsilon, eta

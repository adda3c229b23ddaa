"""Methods side by side on the same prompts in one run: speed, acceptance, and whether the text stayed the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..core.claim import Method
from ..core.cost import Cost
from ..core.errors import BadRequest
from ..core.trace import Trace
from ..recipes.composition import verifier_of
from ..recipes.methods import method as named
from .diverge import Divergence, divergence, passes_of
from .lm import LM, Prompt, several
from .settings import Settings
from .writer import Output

BASELINE = "plain"


@dataclass
class MethodRow:
    """One method over all prompts."""

    method: str
    verify: str | None = None  # what verifies its drafts
    outputs: list[Output] = field(default_factory=list)
    same: int = 0
    parted: list[tuple[int, Divergence]] = field(default_factory=list)  # (prompt, where)

    @property
    def total(self) -> Trace:
        """All traces added up."""
        return sum((output.trace for output in self.outputs), Trace())

    def speed_up(self, plain: MethodRow) -> float:
        """Tokens per second against plain decoding's, both over all prompts."""
        return self.total.tokens_per_second / plain.total.tokens_per_second

    def record(self, plain: MethodRow) -> dict[str, Any]:
        """The row as plain data."""
        total, base = self.total, plain.total
        return {
            "method": self.method,
            "verify": self.verify,
            "speed_up": self.speed_up(plain),
            "break_even_tokens_per_round": total.break_even(base.seconds_total / base.tokens) if base.tokens else None,
            "same_text": self.same,
            "prompts": len(self.outputs),
            "divergences": [
                {"prompt": i, "position": d.position, "gap": d.gap, "noise": d.noise, "near_tie": d.near_tie}
                for i, d in self.parted
            ],
            **total.record(),
        }


@dataclass
class Comparison:
    """All rows, plain decoding first."""

    rows: list[MethodRow]
    cost: Cost | None = None  # what forwards cost here, where a method has asked for it

    @property
    def plain(self) -> MethodRow:
        """The baseline."""
        return self.rows[0]

    def record(self) -> list[dict[str, Any]]:
        """All rows as plain data."""
        return [row.record(self.plain) for row in self.rows]


def compare(
    lm: LM,
    methods: Sequence[str],
    prompts: Sequence[Prompt],
    settings: Settings = Settings(),  # noqa: B008
    advance: Callable[[], None] = lambda: None,
) -> Comparison:
    """Run plain decoding and each method on each prompt, alone, from a cold cache, prompt by prompt.

    The order prompt by prompt lets slow drifts of the machine hit all methods alike. `advance` is called after each
    text. Greedy texts that differ get a verdict: near tie or bug.
    """
    listed = several(prompts)
    if isinstance(methods, str) or not listed:
        raise BadRequest(
            "compare needs a list of methods and at least one prompt, as in compare(lm, ['lookup'], ['a'])"
        )
    built: dict[str, Method] = {BASELINE: named(BASELINE), **{spec: named(spec) for spec in methods}}
    rows = [MethodRow(name, verifier_of(method)) for name, method in built.items()]
    _generate(lm, listed[0], replace(settings, max_tokens=4), built[BASELINE])  # the first forward pays for set-up
    for number, prompt in enumerate(listed):
        for row, method in zip(rows, built.values(), strict=True):
            output = _generate(lm, prompt, settings, method)
            row.outputs.append(output)
            plain = rows[0].outputs[number]
            if output.tokens == plain.tokens:
                row.same += 1
            elif settings.temperature == 0:
                found = divergence(lm.encode(prompt), output.tokens, plain.tokens, passes_of(lm.model))
                row.parted += [] if found is None else [(number, found)]
            advance()
    return Comparison(rows, lm.price() if lm.priced else None)


def _generate(lm: LM, prompt: Prompt, settings: Settings, method: Method) -> Output:
    for model in lm.models().values():
        model.forget()  # a cache warmed by the method before would flatter the next one
    return lm.generate(prompt, settings, method)

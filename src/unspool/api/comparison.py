"""Methods side by side on the same prompts in one run: speed, acceptance, and how far texts are from plain ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from .. import api
from ..core.claim import ARGMAX, LAW, SEED, Entry, Method
from ..core.cost import Cost
from ..core.errors import BadRequest
from ..core.trace import Trace
from ..recipes.composition import verifier_of
from ..recipes.methods import described, method
from ..runtime.engine.contracts import Causal
from .diverge import Divergence, divergence, passes_of
from .likelihood import Pair, likelihoods
from .lm import LM
from .settings import Prompt, Settings, settled, several
from .writer import Output

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .settings import Given

BASELINE = "plain"
_SAME = (SEED, LAW, ARGMAX)  # what is claimed of greedy texts: that they are plain decoding's


@dataclass
class MethodRow:
    """One method over all prompts."""

    method: str
    outputs: list[Output] = field(default_factory=list)
    same: int = 0
    parted: list[tuple[int, Divergence]] = field(default_factory=list)  # (prompt, where)
    entry: Entry | None = None  # what is registered of the method; nothing of one that is given as an object
    verify: str | None = None  # what verifies its drafts
    nats: float | None = None  # -log p of all texts under the model's own law, where it reads from left to right

    @property
    def keeps_text(self) -> bool:
        """Whether the method claims to write plain decoding's greedy text."""
        known = self.entry
        return known is not None and known.claim in _SAME and known.about is None and known.shaped

    @property
    def nats_per_token(self) -> float | None:
        """How unlikely the texts are to the model itself, per token: plain decoding's figure is the one to reach."""
        return None if self.nats is None or not self.total.tokens else self.nats / self.total.tokens

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
            "claim": None if self.entry is None else self.entry.claim.name,
            "verify": self.verify,
            "speed_up": self.speed_up(plain),
            "break_even_tokens_per_round": total.break_even(base.seconds_total / base.tokens) if base.tokens else None,
            "nats_per_token": self.nats_per_token,
            "same_text": self.same,
            "prompts": len(self.outputs),
            "divergences": [
                {"prompt": i, "position": d.position, "gap": d.gap, "noise": d.noise, "near_tie": d.near_tie}
                for i, d in self.parted
            ],
            **total.record(),
        }


@dataclass(repr=False)
class Comparison:
    """All rows, plain decoding first."""

    rows: list[MethodRow]
    cost: Cost | None = None  # what forwards cost here, where a method has asked for it

    @property
    def plain(self) -> MethodRow:
        """The baseline."""
        return self.rows[0]

    def table(self, kind: str = "markdown") -> str:
        """All rows as a table for a paper: markdown, latex or csv."""
        if kind not in api.papers.FORMATS:
            raise BadRequest(f"a table cannot be made as {kind!r}; expected one of: {', '.join(api.papers.FORMATS)}")
        return str(api.papers.table(kind, api.display.COMPARED, api.display.comparison_rows(self)))

    def figure(self) -> str:
        """Speed-ups as bars, in SVG."""
        plain, prompts = self.plain, len(self.plain.outputs)
        found = [
            api.bars.Bar(row.method, row.speed_up(plain), told=f"{row.total.tokens_per_forward:.2f} tokens per forward")
            for row in self.rows
        ]
        return str(api.bars.bars(found, f"Speed of decoding, {prompts} prompts", "times plain decoding's speed"))

    def bibtex(self) -> str:
        """The papers of the methods compared, by their numbers on arXiv."""
        known = [(row.entry.name, row.entry.paper, row.entry.systems) for row in self.rows if row.entry is not None]
        return str(api.papers.bibtex(known))

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        many = len(self.plain.outputs)
        return f"Comparison({', '.join(row.method for row in self.rows)}: {many} prompt{'s' * (many != 1)})"

    def _repr_html_(self) -> str:
        return api.display.comparison_html(self)

    def record(self) -> list[dict[str, Any]]:
        """All rows as plain data."""
        return [row.record(self.plain) for row in self.rows]


def compare(
    lm: LM,
    methods: Sequence[str | Method],
    prompts: Sequence[Prompt],
    settings: Settings = Settings(),  # noqa: B008
    advance: Callable[[], None] = lambda: None,
    *,
    raw: bool = False,
    **given: Unpack[Given],
) -> Comparison:
    """Run plain decoding and each method on each prompt, alone, from a cold cache, prompt by prompt.

    Texts are put into the chat template unless `raw`. The order prompt by prompt lets slow drifts of the machine hit
    all methods alike. `advance` is called after each text. Greedy texts that differ where a claim says that they do not
    get a verdict: near tie or bug. All are scored once more, without warps, for how likely they are to the model.
    """
    settings = settled(settings, given)
    listed = [lm.encode(lm.asked(prompt, raw)) for prompt in several(prompts)]
    if isinstance(methods, str) or not listed:
        raise BadRequest(
            "compare needs a list of methods and at least one prompt, as in compare(lm, ['lookup'], ['a'])"
        )
    specs = [BASELINE, *(spec for spec in methods if spec != BASELINE)]
    built = [method(spec) for spec in specs]
    rows = [
        MethodRow(_called(spec), entry=_entry(spec), verify=verifier_of(one))
        for spec, one in zip(specs, built, strict=True)
    ]
    _generate(lm, listed[0], replace(settings, max_tokens=4), built[0])  # the first forward pays for set-up
    for number, prompt in enumerate(listed):
        for row, one in zip(rows, built, strict=True):
            output = _generate(lm, prompt, settings, one)
            row.outputs.append(output)
            _score(row, lm, prompt)
            plain = rows[0].outputs[number]
            if output.tokens == plain.tokens:
                row.same += 1
            elif settings.temperature == 0 and row.keeps_text:
                found = divergence(prompt, output.tokens, plain.tokens, passes_of(lm.model))
                row.parted += [] if found is None else [(number, found)]
            advance()
    return Comparison(rows, lm.price() if lm.priced else None)


def _called(spec: str | Method) -> str:
    """A method as a row of a table names it."""
    return spec if isinstance(spec, str) else getattr(spec, "__name__", type(spec).__name__)


def _entry(spec: str | Method) -> Entry | None:
    return described(spec) if isinstance(spec, str) else None


def _score(row: MethodRow, lm: LM, prompt: tuple[int, ...]) -> None:
    """Add to a row how unlikely its last text is to the model."""
    tokens = row.outputs[-1].tokens
    if tokens and isinstance(lm.model, Causal):
        (found,) = likelihoods(lm.model, [Pair(prompt, tokens)])
        row.nats = (row.nats or 0.0) - found.logprob


def _generate(lm: LM, prompt: Prompt, settings: Settings, method: Method) -> Output:
    for model in lm.models().values():
        model.forget()  # a cache warmed by the method before would flatter the next one
    return lm.generate(prompt, settings, method)

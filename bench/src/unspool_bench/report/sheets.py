"""The sheets of a run: what its standings and rows say, as tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from unspool.core.cost import Cost

from ..contender import PLAIN
from ..parallel import ParallelRow
from ..standing import ConfidenceInterval, Standing
from .runs import WHOLE, MeasuredRun
from .sheet import NONE, Sheet, SheetCell, SheetColumn, Value, number, word
from .spent import PARTS, spent
from .strips import strip

# Where a shade ends. Above and below 1 alike: twice as fast is as far from 1 as half as fast.
SHADES = (1.03, 1.15, 1.35, 1.7, 2.2, 3.0)
METHOD = SheetColumn("method", look="name")


def speed_ups(run: MeasuredRun, name: str) -> Sheet:
    """The heat map: speed-up by method and family, with its interval."""
    heads = ["contender", "family", "cases", "tokens", "seconds", "speed_up", "speed_up_low", "speed_up_high"]
    return Sheet(
        name,
        f"Speed-up over plain decoding, {run.suite}",
        [METHOD, *(SheetColumn(family, look="number") for family in run.families)],
        [
            [word(contender), *(_heat(own.get(family)) for family in run.families)]
            for contender, own in run.table.items()
        ],
        heads,
        [[s.contender, s.family, s.cases, s.tokens, s.seconds, *s.speed_up] for s in run.standings],
    )


def shade(speed_up: float) -> str:
    """The class of a shade: s0 at 1, u1 … u6 above, d1 … d6 below."""
    if speed_up <= 0 or not math.isfinite(speed_up):
        return "s0"
    step = sum(max(speed_up, 1 / speed_up) >= bound for bound in SHADES)
    return "s0" if step == 0 else f"{'u' if speed_up > 1 else 'd'}{step}"


def _heat(standing: Standing | None) -> SheetCell:
    if standing is None:
        return SheetCell(NONE, None, tip="not measured on all cases")
    found = standing.speed_up
    if standing.contender == PLAIN:
        return SheetCell(f"{found.value:.2f}×", found.value, tip="what the others are held against", look="unsure")
    if math.isnan(found.low):
        return SheetCell(
            f"{found.value:.2f}×", found.value, "1 case", "one case gives no interval", shade(found.value) + " unsure"
        )
    unsure = found.low <= 1 <= found.high
    tip = f"95 % interval {found.low:.3f} to {found.high:.3f}, over {standing.cases} cases"
    tip += "; it holds 1, so no difference is shown" if unsure else ""
    return SheetCell(f"{found.value:.2f}×", found.value, ranged(found), tip, shade(found.value) + " unsure" * unsure)


def ranged(found: ConfidenceInterval, form: str = ".2f") -> str:
    """An interval's ends."""
    return "" if math.isnan(found.low) else f"{found.low:{form}}–{found.high:{form}}"


def grid(run: MeasuredRun, name: str, caption: str, figure: Callable[[Standing], float | None], form: str) -> Sheet:
    """One figure by method and family."""
    return Sheet(
        name,
        f"{caption}, {run.suite}",
        [METHOD, *(SheetColumn(family, look="number") for family in run.families)],
        [
            [word(contender), *(number(figure(own[f]) if f in own else None, form) for f in run.families)]
            for contender, own in run.table.items()
        ],
    )


def latencies(run: MeasuredRun, name: str, chosen: Sequence[Standing], what: str) -> Sheet:
    """What a user waits for, and how drafts fared; names as vLLM has them."""
    several = len({each.family for each in chosen}) > 1
    columns = (
        METHOD,
        *([SheetColumn("family")] if several else []),
        SheetColumn("texts", look="number"),
        SheetColumn("tokens/s", "tokens of all texts over the wall time of all, prompts included", "number"),
        SheetColumn("TTFT ms", "time to first token, mean", "number"),
        SheetColumn("TPOT ms", "time per output token after the first, mean", "number"),
        SheetColumn("mean length", "mean acceptance length: 1 + accepted tokens per round", "number"),
        SheetColumn("accepted", "draft acceptance rate: accepted over drafted tokens", "number"),
        SheetColumn("same text", "texts that are plain decoding's, token for token", "number"),
    )
    heads = ["contender", "family", "texts", "tokens_per_second", "time_to_first_token", "time_per_output_token"]
    heads += ["mean_acceptance_length", "draft_acceptance_rate", "same", "tokens", "forwards", "tokens_per_forward"]
    return Sheet(
        name,
        f"{what}, {run.suite}",
        columns,
        [_latency(each, several) for each in chosen],
        heads,
        list(map(_full, chosen)),
    )


def _latency(s: Standing, several: bool) -> list[SheetCell]:
    return [
        word(s.contender),
        *([word(s.family)] if several else []),
        number(s.texts, "d"),
        number(s.tokens_per_second, ".1f"),
        number(_milliseconds(s.time_to_first_token), ".1f"),
        number(_milliseconds(s.time_per_output_token), ".2f"),
        number(s.mean_acceptance_length),
        number(s.draft_acceptance_rate, ".1%"),
        SheetCell(NONE, None) if s.same is None else SheetCell(f"{s.same} of {s.texts}", s.same / s.texts),
    ]


def _full(s: Standing) -> list[Value]:
    waits = [s.time_to_first_token, s.time_per_output_token, s.mean_acceptance_length, s.draft_acceptance_rate]
    counts = [s.same, s.tokens, s.forwards, s.tokens_per_forward]
    return [s.contender, s.family, s.texts, s.tokens_per_second, *waits, *counts]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def splits(run: MeasuredRun, name: str) -> Sheet:
    """Where the time of a token goes, as numbers and as a bar; bars share one scale."""
    found = {contender: each for contender, rows in run.rows.items() if (each := spent(rows)) is not None}
    most = max((each.whole for each in found.values()), default=1.0)
    return Sheet(
        name,
        f"Milliseconds per token by what they were spent on, {run.suite}",
        [
            METHOD,
            SheetColumn("", look="bar"),
            *(SheetColumn(part, tip, "number") for part, tip in PARTS.items()),
            SheetColumn("ms per token", "wall time over tokens, prompts included", "number"),
        ],
        [
            [
                word(contender),
                SheetCell(strip(each, most), None),
                *(number(None if each.parts is None else 1e3 * each.parts[part]) for part in PARTS),
                number(1e3 * each.whole),
            ]
            for contender, each in found.items()
        ],
        ["contender", *(f"{part}_seconds_per_token" for part in PARTS), "seconds_per_token"],
        [
            [contender, *(None if each.parts is None else each.parts[part] for part in PARTS), each.whole]
            for contender, each in found.items()
        ],
    )


def costs(price: Cost, name: str) -> Sheet:
    """t(n), and how many tokens a round of n rows must write to be as fast as plain decoding."""
    return Sheet(
        name,
        "Cost of a forward over n rows",
        [
            SheetColumn("rows", look="number"),
            SheetColumn("t(n) ms", look="number"),
            SheetColumn("t(n) / t(1)", "tokens that a round of n rows must write to break even", "number"),
        ],
        [[number(n, "d"), number(1e3 * price(n), ".3f"), number(price.break_even(n))] for n in price.rows],
        ["rows", "seconds", "break_even_tokens"],
        [[n, price(n), price.break_even(n)] for n in price.rows],
    )


def rights(run: MeasuredRun, name: str) -> Sheet:
    """Shares of right answers with Wilson's intervals."""
    heads = ["contender", "family", "right", "right_low", "right_high"]
    return Sheet(
        name,
        f"Right answers, with Wilson's 95 % intervals, {run.suite}",
        [METHOD, *(SheetColumn(family, look="number") for family in run.families)],
        [
            [word(contender), *(_right(own.get(family)) for family in run.families)]
            for contender, own in run.table.items()
        ],
        heads,
        [[s.contender, s.family, *s.right] for s in run.standings if s.right is not None],
    )


def _right(standing: Standing | None) -> SheetCell:
    if standing is None or standing.right is None:
        return SheetCell(NONE, None)
    found = standing.right
    tip = f"Wilson's 95 % interval {found.low:.1%} to {found.high:.1%}"
    return SheetCell(f"{found.value:.1%}", found.value, f"{100 * found.low:.0f}–{found.high:.0%}", tip)


class Parting(NamedTuple):
    """A greedy text that is not plain decoding's."""

    contender: str
    family: str
    case: str
    repeat: str
    verdict: str
    found: dict[str, Any]


SHOWN = 20  # divergences on the page; the CSV has all
TIE, BUG, CLAIMLESS = "near tie", "BUG", "approximate"


def partings(run: MeasuredRun) -> list[Parting]:
    """All first divergences: bugs first, then near ties, then those of methods that claim no such text."""
    parted = []
    for (case, contender, repeat), row in run.journal.items():
        for each in row.get("parted", ()):
            verdict = TIE if each["near_tie"] else BUG if run.exact(contender) else CLAIMLESS
            parted.append(Parting(contender, row["family"], case, repeat, verdict, each))
    order = (BUG, TIE, CLAIMLESS)
    return sorted(parted, key=lambda each: order.index(each.verdict))


def divergences(run: MeasuredRun, name: str, parted: Sequence[Parting]) -> Sheet:
    """Where texts part from plain decoding's, and the verdict."""
    columns = (
        METHOD,
        SheetColumn("verdict", "near tie: rounding explains it; BUG: it does not, and the method claims this text"),
        SheetColumn("case"),
        SheetColumn("position", "of the first token that differs", "number"),
        SheetColumn("token", "the method's, by number", "number"),
        SheetColumn("plain's", "plain decoding's, by number", "number"),
        SheetColumn("gap", "how far apart the two tokens' logits are; ∞ if one text ended there", "number"),
        SheetColumn("noise", "the largest difference between ways to compute them", "number"),
    )
    rows = [
        [
            word(each.contender),
            SheetCell(each.verdict, each.verdict, look="bug" if each.verdict == BUG else ""),
            word(each.case),
            number(each.found["position"], "d"),
            number(each.found["ours"], "d"),
            number(each.found["theirs"], "d"),
            number(each.found["gap"], ".2e"),
            number(each.found["noise"], ".2e"),
        ]
        for each in parted[:SHOWN]
    ]
    heads = ["contender", "verdict", "case", "family", "repeat", "position", "ours", "theirs", "gap", "noise"]
    told = [
        [p.contender, p.verdict, p.case, p.family, p.repeat]
        + [p.found[key] for key in ("position", "ours", "theirs", "gap", "noise")]
        for p in parted
    ]
    return Sheet(name, f"First divergences from plain decoding, {run.suite}", columns, rows, heads, told)


def parallels(rows: Sequence[ParallelRow], name: str) -> Sheet:
    """The rows of the parallel benchmark."""
    heads = ("task", "n", "model", "tokens per forward", "accuracy", "± ", "ideal")
    columns = [SheetColumn(head, look="" if head in ("task", "model") else "number") for head in heads]
    return Sheet(
        name,
        "Accuracy over tokens per forward, list tasks",
        [METHOD, *columns],
        [
            [
                word(row.method), word(row.task), number(row.n, "d"), word(row.model),
                number(row.tokens_per_forward), number(row.accuracy, ".3f"), number(row.error, ".3f"),
                number(row.ideal, ".3f"),
            ]
            for row in rows
        ],
        list(rows[0].record()) if rows else [],
        [list(row.record().values()) for row in rows],
    )  # fmt: skip


def by_family(run: MeasuredRun) -> list[Standing]:
    """The standings of single families, where there are several."""
    return [each for each in run.standings if each.family != WHOLE] if WHOLE in run.families else []

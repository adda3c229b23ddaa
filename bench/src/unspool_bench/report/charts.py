"""The charts of a run: what a round costs and must write, and what speed costs in fidelity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from unspool.core.cost import Cost

from ..contender import PLAIN
from ..standing import ConfidenceInterval, Standing, wilson
from .markup import Html
from .plots import Doubling, PlotMark, across, line, marks, plot, upward
from .runs import MeasuredRun
from .sheet import Sheet, SheetCell, SheetColumn, Value, number, word
from .spent import per_round


def numbers(run: MeasuredRun) -> dict[str, int]:
    """The number of each contender in the charts of a run."""
    return {contender: number for number, contender in enumerate(run.rows, 1)}


def cost(run: MeasuredRun, price: Cost, name: str) -> Html:
    """t(n) / t(1) over n, the bound n, and where the rounds of each contender came to lie."""
    rows, curve = price.rows, [(n, price.break_even(n)) for n in price.rows]
    found = {name: at for name, own in run.rows.items() if (at := per_round(own)) is not None}
    widest = max(rows[-1], 2, *(x for x, _ in found.values())) if found else max(rows[-1], 2)
    highest = max(2.0, *(y for _, y in curve), *(y for _, y in found.values())) * 1.1
    lowest = min(1.0, *(y for _, y in curve))
    x = across("rows of a round, n", rows[0], widest, _doublings(rows[0], widest), Doubling)
    y = upward("tokens per round", lowest, highest, _doublings(lowest, highest), Doubling)
    top = min(widest, highest)
    drawn = [
        line([(rows[0], rows[0]), (top, top)], x, y, "bound", "n tokens: all that was drafted stood"),
        line(curve, x, y, "curve", "t(n) / t(1): what a round must write to break even"),
    ]
    places = [
        PlotMark(numbers(run)[each], each, a, b, f"{a:.2f} rows and {b:.2f} tokens per round")
        for each, (a, b) in found.items()
    ]
    said = "Break-even tokens per round by rows: " + ", ".join(f"{n}: {ratio:.2f}" for n, ratio in curve)
    said += "".join(f"; {mark.name} has {mark.tip}" for mark in places) + "."
    return plot("What a round of n rows costs, and must write", said, x, y, [*drawn, *marks(places, x, y)], name)


def rounds(run: MeasuredRun, price: Cost, name: str) -> Sheet:
    """The numbers of the chart: what a contender's rounds cost and write, and what came of it."""
    told: list[list[SheetCell]] = []
    csv: list[list[Value]] = []
    for contender, own in run.rows.items():
        if (at := per_round(own)) is None:
            continue
        must = break_even(price, at[0])
        came = run.overall[contender].speed_up.value if contender in run.overall else None
        mark = number(numbers(run)[contender], "d")
        told.append([mark, word(contender), *map(number, (*at, must, at[1] / must, came))])
        csv.append([contender, *at, must, at[1] / must, came])
    return Sheet(
        name,
        f"Rounds against the cost curve, {run.suite}",
        [
            SheetColumn("no.", look="number"),
            SheetColumn("method", look="name"),
            SheetColumn("rows", "1 + drafted tokens per round, mean", "number"),
            SheetColumn("tokens", "1 + accepted tokens per round, mean", "number"),
            SheetColumn("break-even", "t(rows) / t(1), between measured rows on a straight line", "number"),
            SheetColumn(
                "tokens / break-even", "the speed-up if all rounds were alike and drafts cost nothing", "number"
            ),
            SheetColumn("speed-up", "measured", "number"),
        ],
        told,
        ["contender", "rows_per_round", "tokens_per_round", "break_even_tokens", "tokens_over_break_even", "speed_up"],
        csv,
    )


def break_even(cost: Cost, rows: float) -> float:
    """t(rows) / t(1); between whole numbers of rows on a straight line, as the cost itself is."""
    below = math.floor(rows)
    return cost.break_even(below) + (rows - below) * (cost.break_even(below + 1) - cost.break_even(below))


Share = Callable[[Standing], "ConfidenceInterval | None"]


def same_share(standing: Standing) -> ConfidenceInterval | None:
    """The share of texts that are plain decoding's, which itself is 1."""
    if standing.contender == PLAIN:
        return ConfidenceInterval(1.0, 1.0, 1.0)
    return None if standing.same is None else wilson(standing.same, standing.texts)


def right_share(standing: Standing) -> ConfidenceInterval | None:
    """The share of right answers."""
    return standing.right


def front(found: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those than which none is both faster and better, from the slowest on."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(set(found), reverse=True):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best[::-1]


def pareto(run: MeasuredRun, share: Share, what: str, name: str) -> Html:
    """Speed-up against a share, with intervals both ways, and the front."""
    found = {s.contender: (s, held) for s in run.overall.values() if (held := share(s)) is not None}
    ends = [end for s, _ in found.values() for end in s.speed_up if not math.isnan(end)]
    low, high = min(1.0, *ends) / 1.05, max(1.0, *ends) * 1.05
    x = across("speed-up over plain decoding", low, high, _ratios(low, high), Doubling)
    y = upward(what, 0.0, 1.07, [(share / 4, f"{share / 4:.0%}") for share in range(5)])
    places = [
        PlotMark(
            numbers(run)[contender],
            contender,
            s.speed_up.value,
            held.value,
            f"{s.speed_up.value:.2f} times plain, {held.value:.1%}",
            "dot" if run.exact(contender) else "ring",
            None if math.isnan(s.speed_up.low) else (s.speed_up.low, s.speed_up.high),
            (held.low, held.high),
        )
        for contender, (s, held) in found.items()
    ]
    edge = front([(mark.x, mark.y) for mark in places])
    drawn = [line(edge, x, y, "bound", "the front: none is both faster and better")] if len(edge) > 1 else []
    said = f"{what} by speed-up: " + "; ".join(f"{mark.name} {mark.tip}" for mark in places) + "."
    return plot(f"Speed against {what}", said, x, y, [*drawn, *marks(places, x, y)], name)


def trades(run: MeasuredRun, share: Share, what: str, name: str) -> Sheet:
    """The numbers of the chart."""
    told: list[list[SheetCell]] = []
    csv: list[list[Value]] = []
    found = [(s, held) for s in run.overall.values() if (held := share(s)) is not None]
    edge = set(front([(s.speed_up.value, held.value) for s, held in found]))
    for s, held in found:
        best = (s.speed_up.value, held.value) in edge
        told.append([
            number(numbers(run)[s.contender], "d"),
            word(s.contender),
            word("plain's text" if run.exact(s.contender) else "approximate"),
            number(s.speed_up.value),
            number(s.tokens_per_forward),
            SheetCell(f"{held.value:.1%}", held.value, f"{100 * held.low:.0f}–{held.high:.0%}"),
            word("on it" if best else ""),
        ])  # fmt: skip
        csv.append([s.contender, s.speed_up.value, s.tokens_per_forward, *held, int(best)])
    return Sheet(
        name,
        f"Speed against {what}, {run.suite}",
        [
            SheetColumn("no.", look="number"),
            SheetColumn("method", look="name"),
            SheetColumn("claims", "plain decoding's text, or an approximation"),
            SheetColumn("speed-up", look="number"),
            SheetColumn("tokens/forward", look="number"),
            SheetColumn(what, "with Wilson's 95 % interval", "number"),
            SheetColumn("front", "no other is both faster and better"),
        ],
        told,
        ["contender", "speed_up", "tokens_per_forward", "share", "share_low", "share_high", "front"],
        csv,
    )


def _doublings(low: float, high: float) -> list[tuple[float, str]]:
    powers = range(math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9) + 1)
    return [(2.0**power, f"{2.0**power:g}") for power in powers]


def _ratios(low: float, high: float) -> list[tuple[float, str]]:
    known = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 7, 10, 15, 20, 30)
    inside = [ratio for ratio in known if low <= ratio <= high]
    kept = inside if len(inside) <= 9 else [ratio for ratio in inside if ratio in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20)]
    return [(ratio, f"{ratio:g}×") for ratio in kept]

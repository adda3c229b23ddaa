"""Parts: what a run has to show, each with a sentence on how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from unspool.core.cost import Cost

from ..contender import PLAIN
from . import charts, sheets
from .markup import Html, tag
from .runs import MeasuredRun
from .sheet import Sheet
from .spent import accepted
from .strips import histograms, key


@dataclass(frozen=True)
class Folded:
    """A sheet that is shown on demand."""

    summary: str
    sheet: Sheet


Piece: TypeAlias = Html | Sheet | Folded


@dataclass(frozen=True)
class ReportPart:
    """A heading, how to read what is below it, and that."""

    name: str  # its id on the page
    title: str
    note: str
    pieces: Sequence[Piece]


def parts(run: MeasuredRun, key: str) -> Iterator[ReportPart]:
    """All parts for which a run has data; names begin with `key`."""
    if not run.standings:
        return
    yield _speed(run, f"{key}-speed-up")
    if run.suite == "throughput":
        yield _throughput(run, f"{key}-throughput")
    if any(s.right is not None for s in run.standings):
        yield from _quality(run, f"{key}-right")
    yield _tokens(run, f"{key}-tokens-per-forward")
    yield _latency(run, f"{key}-latency")
    yield _split(run, f"{key}-time")
    if run.cost is not None:
        yield _cost(run, run.cost, f"{key}-cost")
    if drafting := {name: counted for name, rows in run.rows.items() if (counted := accepted(rows))}:
        yield ReportPart(
            f"{key}-accepted",
            "Accepted tokens per round",
            "Per cent of rounds in which so many drafted tokens stood; each round adds one token more. Much at 0 means "
            "that drafts were not worth their rows; much at the right end that longer drafts may pay.",
            [histograms(drafting)],
        )
    yield from _fidelity(run, key)


def _speed(run: MeasuredRun, name: str) -> ReportPart:
    legend = [(1 / 2.5, "d5"), (1 / 1.5, "d3"), (1 / 1.2, "d2"), (1, "s0"), (1.2, "u2"), (1.5, "u3"), (2.5, "u5")]
    squares = [tag("span", {"class": look}, f"{value:.2g}×") for value, look in legend]
    scale = tag("p", {"class": "scale", "aria-hidden": "true"}, "slower ", *squares, " faster")
    return ReportPart(
        name,
        "Speed-up",
        "Tokens per second over plain decoding's, sums over sums. Below each figure is its 95 % interval, from drawing "
        "the cases anew a thousand times; where it holds 1 the figure is set lighter: no difference is shown.",
        [sheets.speed_ups(run, name), scale],
    )


def _throughput(run: MeasuredRun, name: str) -> ReportPart:
    grid = sheets.grid(run, name, "Tokens per second of all texts together", lambda s: s.tokens_per_second, ".1f")
    return ReportPart(
        name, "Throughput", "Tokens per second of all texts of a batch together, prompts included.", [grid]
    )


def _quality(run: MeasuredRun, name: str) -> Iterator[ReportPart]:
    yield ReportPart(
        name,
        "Right answers",
        "Answers that the task's own check accepts. Intervals are Wilson's; an exact method must score as plain "
        "decoding does, up to near ties.",
        [sheets.rights(run, name)],
    )
    if len([s for s in run.overall.values() if s.right is not None]) > 1:
        what = "share right"
        yield ReportPart(
            f"{name}-pareto",
            "Speed against right answers",
            "Up and to the right is better; the dashed line joins methods than which none is both faster and better. "
            "Open circles are approximate methods.",
            [
                charts.pareto(run, charts.right_share, what, f"{name}-pareto"),
                charts.trades(run, charts.right_share, what, f"{name}-pareto"),
            ],
        )


def _tokens(run: MeasuredRun, name: str) -> ReportPart:
    return ReportPart(
        name,
        "Tokens per forward",
        "New tokens per forward of the target model: what drafting gains before it is paid for. The machine does not "
        "matter here.",
        [sheets.grid(run, name, "Tokens per forward of the target", lambda s: s.tokens_per_forward, ".2f")],
    )


def _latency(run: MeasuredRun, name: str) -> ReportPart:
    pieces: list[Piece] = [sheets.latencies(run, name, list(run.overall.values()), "Latency and acceptance")]
    if families := sheets.by_family(run):
        told = sheets.latencies(run, f"{name}-by-family", families, "Latency and acceptance by family")
        pieces.append(Folded("By family", told))
    return ReportPart(
        name,
        "Time to first token, time per output token",
        "TTFT, TPOT and the acceptance figures are named as in vLLM.",
        pieces,
    )


def _split(run: MeasuredRun, name: str) -> ReportPart:
    return ReportPart(
        name,
        "Where the time goes",
        "Wall time per token, prompts included, split in the shares that the traces tell. Shorter is faster; a method "
        "pays if what it adds on the left it saves in forwards.",
        [sheets.splits(run, name), key()],
    )


def _cost(run: MeasuredRun, price: Cost, name: str) -> ReportPart:
    pieces: list[Piece] = [charts.cost(run, price, name)]
    told = charts.rounds(run, price, f"{name}-rounds")
    pieces += [told] if told.rows else []
    pieces.append(Folded("t(n) in numbers", sheets.costs(price, name)))
    return ReportPart(
        name,
        "What a round costs",
        "The solid line is t(n) / t(1), the time of a forward over n rows in forwards over one: what a round must "
        "write to break even. The dashed line is n, which no round can exceed. Dots are the methods' mean rounds: the "
        "higher above the solid line, the more is left to pay for drafts. Texts written together share forwards, and "
        "have no dots.",
        pieces,
    )


def _fidelity(run: MeasuredRun, key: str) -> Iterator[ReportPart]:
    """Same texts and first divergences; one sentence where there are none. Drawn texts may differ: laws are claimed."""
    held = [s for s in run.overall.values() if s.same is not None]
    if not held or run.drawn:
        return
    differing = [s for s in held if s.same != s.texts]
    if differing:
        what, name = "share of same texts", f"{key}-pareto"
        yield ReportPart(
            name,
            "Speed against fidelity",
            "The share of texts that are plain decoding's, token for token, with Wilson's 95 % intervals. Open circles "
            "are approximate methods; the dashed line joins those than which none is both faster and closer.",
            [
                charts.pareto(run, charts.same_share, what, name),
                charts.trades(run, charts.same_share, what, name),
            ],
        )
    parted, name = sheets.partings(run), f"{key}-divergences"
    if parted:
        bugs = sum(each.verdict == sheets.BUG for each in parted)
        counted = f"{bugs} {'BUG' if bugs == 1 else 'BUGS'}. " if bugs else "No bugs. "
        note = (
            "Where greedy texts first part from plain decoding's. A gap between the two tokens' logits within twice "
            "the noise is a near tie that rounding decides; a larger one is a BUG, unless the method claims no such "
            "text."
        )
        note += f" Shown are {sheets.SHOWN} of {len(parted)}; the CSV has all." if len(parted) > sheets.SHOWN else ""
        yield ReportPart(name, "First divergences", counted + note, [sheets.divergences(run, name, parted)])
        return
    texts = sum(s.texts for s in held if s.contender != PLAIN)
    same = sum(s.same or 0 for s in held if s.contender != PLAIN)
    if same == texts:
        yield ReportPart(
            name, "First divergences", f"None: all {texts} texts are plain decoding's, token for token.", []
        )

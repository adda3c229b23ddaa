"""`unspool compare`: methods side by side on the same prompts, as a table, and a sentence for each whether it pays."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from tqdm import tqdm

from ... import api
from ...api.papers import FORMATS
from ...core.claim import SEED
from ...core.errors import BadRequest
from .examples import PROMPTS
from .group import FORCED, Constraining, Grouped, SamplingOptions, methods_like, options
from .loading import Loading
from .terminal import dump, note, read_file, table, write

if TYPE_CHECKING:
    from ...api.comparison import Comparison, MethodRow
    from ...core.cost import Cost


_HEADS = (
    "method",
    "verified by",
    "tokens",
    "tokens/forward",
    "accepted",
    "seconds",
    "draft/forward/rule/rest",
    "speed-up",
    "break-even",
    "same text",
    "nats/token",
)
_ROWS = (2, 3, 5, 9, 17, 33)
_MARGIN = 0.03  # differences below this are noise of the machine
_MOST = 64  # tokens per text unless told otherwise: enough for acceptance to settle, quick enough to wait for


def report(found: Comparison, greedy: bool) -> str:
    """The whole report."""
    rows = [_cells(row, found.plain) for row in found.rows]
    text = table(_HEADS, rows, right=", ".join(_HEADS[2:])) + "\n"
    for row in found.rows[1:]:
        for number, where in row.parted:
            text += f"{row.method} parts from plain decoding in prompt {number + 1}, {where}\n"
    text += "\n" + "".join(f"{verdict(row, found.plain, greedy)}\n" for row in found.rows[1:])
    return text if found.cost is None else f"{text}{_line(found.cost)}\n"


def _line(cost: Cost) -> str:
    first, *others = (f"{cost.break_even(rows):.2f}" for rows in _ROWS)
    points = ", ".join(f"{tokens} with {rows - 1}" for tokens, rows in zip(others, _ROWS[1:], strict=True))
    return f"break-even here: a round must bring {first} tokens to pay with 1 of them drafted, {points}."


def _cells(row: MethodRow, plain: MethodRow) -> tuple[str, ...]:
    total = row.total
    rate = total.draft_acceptance_rate
    spent = (total.seconds_draft, total.seconds_forward, total.seconds_rule, total.seconds_overhead)
    split = "/".join(f"{part / total.seconds_total:.0%}" for part in spent) if total.seconds_total else "-"
    pays = _break_even(row, plain)
    return (
        row.method,
        row.verify or "-",
        f"{total.tokens}",
        f"{total.tokens_per_forward:.2f}",
        "-" if rate is None else f"{rate:.0%}",
        f"{total.seconds_total:.2f}",
        split,
        f"{row.speed_up(plain):.2f}×",
        "-" if row is plain or pays is None else f"{pays:.2f}",
        f"{row.same} of {len(row.outputs)}",
        "-" if row.nats_per_token is None else f"{row.nats_per_token:.3f}",
    )


def verdict(row: MethodRow, plain: MethodRow, greedy: bool) -> str:
    """One sentence: whether the method pays here, and why; and one about its texts, by what it claims of them."""
    speed, why = row.speed_up(plain), _why(row, plain)
    if speed > 1 + _MARGIN:
        said = f"{speed:.2f}× as fast as plain decoding here; {why}."
    elif speed < 1 - _MARGIN:
        advice = "do not speculate here: " if _drafts(row) else "slower here: "
        said = f"{advice}{speed:.2f}× the speed of plain decoding; {why}."
    else:
        said = f"makes no difference here ({speed:.2f}×); {why}."
    return f"{row.method}: {said}{_sameness(row, greedy)}{_quality(row, plain)}"


def _drafts(row: MethodRow) -> bool:
    """Whether the method speculates: by its family or, if nothing is known of it, by what it did."""
    if row.entry is None:
        return row.total.drafted > 0
    return row.entry.family in ("draft", "verify")


def _why(row: MethodRow, plain: MethodRow) -> str:
    total = row.total
    if not _drafts(row):
        return f"it wrote {total.tokens_per_forward:.2f} tokens per forward"
    got = total.tokens / total.rounds if total.rounds else 0.0
    return f"a round must bring {_break_even(row, plain) or 0.0:.2f} tokens to pay, and brought {got:.2f}"


def _sameness(row: MethodRow, greedy: bool) -> str:
    differ = len(row.outputs) - row.same
    if not differ:
        return ""
    counted = f" {differ} of {len(row.outputs)} texts"
    if row.entry is None:
        return f"{counted} differ; what it claims is not known (`unspool prove FILE.py:NAME` tells)."
    if not row.keeps_text:
        return f"{counted} differ from plain decoding's, as its claim allows ({row.entry.promise})."
    if not greedy and row.entry.claim is SEED:
        return f"{counted} differ though it claims SEED: rounding does that, or a bug; --batch-invariant tells which."
    if not greedy:
        return f"{counted} are other draws than plain decoding's."
    bugs = sum(not where.near_tie for _, where in row.parted)
    if bugs:
        return f" {bugs} of {len(row.outputs)} texts differ by more than rounding explains: that is a bug."
    return f"{counted} part at near ties, which rounding decides."


def _quality(row: MethodRow, plain: MethodRow) -> str:
    """How much less likely the texts are than plain decoding's, where they may be others."""
    ours, theirs = row.nats_per_token, plain.nats_per_token
    if row.keeps_text or ours is None or theirs is None or row.same == len(row.outputs):
        return ""
    if abs(ours - theirs) < 0.0005:
        return " To the model they are as likely."
    return (
        f" To the model they are {abs(ours - theirs):.3f} nats per token {'less' if ours > theirs else 'more'} likely."
    )


def _break_even(row: MethodRow, plain: MethodRow) -> float | None:
    base = plain.total
    return row.total.break_even(base.seconds_total / base.tokens) if base.tokens else None


@click.command(cls=Grouped, short_help="Methods side by side: speed, acceptance, whether they pay.")
@click.argument("method", nargs=-1, shell_complete=methods_like)
@click.option("--prompts", "files", multiple=True, metavar="FILE", help="Prompts: one per line, or .jsonl. Repeatable.")
@click.option("-p", "--prompt", "given", multiple=True, metavar="TEXT", help="A prompt. Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per method in a list, plain decoding first.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="A table for a paper instead of the report.")
@click.option("--figure", metavar="FILE", help="Draw the speed-ups, as .svg or .pdf.")
@click.option("--bibtex", is_flag=True, help="Behind that, the papers of the methods as BibTeX.")
@options(Constraining, "constraining")
@options(Loading, "loading")
@options(SamplingOptions, "drawing")
def compare(
    method: tuple[str, ...],
    files: tuple[str, ...],
    given: tuple[str, ...],
    as_json: bool,
    kind: str | None,
    figure: str | None,
    bibtex: bool,
    constraining: Constraining,
    loading: Loading,
    drawing: SamplingOptions,
) -> None:
    """Run plain decoding and each METHOD on the same prompts, each from a cold cache.

    If no METHOD is named it is lookup, and `forced` where the texts must have a form.

    Shows what each method accepted, where the time went, and how many tokens a round must bring to pay. Texts that
    differ from plain greedy decoding get a verdict: near tie or not. A .jsonl file has objects with "prompt", or with
    "turns", whose first one is used. Without prompts, six built-in ones are used; texts have 64 tokens unless
    --max-tokens says otherwise.
    """
    texts = [text for file in files for text in prompts_of(file)] + list(given) or list(PROMPTS)
    if not all(text.strip() for text in texts):
        raise BadRequest("one of the prompts is empty; give some text to go on from.")
    settings = drawing.settings(max_tokens=_MOST)
    settings = replace(settings, constraint=constraining.form(settings.max_tokens))
    usual = "lookup" if settings.constraint is None else FORCED
    methods = tuple(dict.fromkeys(spec for spec in method or (usual,) if spec != "plain"))
    if figure is not None:
        api.figures.check(figure)
    loading.check(methods)
    lm = loading.load()
    loading.prepare(lm, methods)
    steps = len(texts) * (1 + len(methods))
    with tqdm(total=steps, unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:

        def advance() -> None:
            bar.update(1)

        asked = [loading.prompt(lm, text) for text in texts]
        found = api.comparison.compare(lm, methods, asked, settings, advance)
    outputs = [output for row in found.rows for output in row.outputs]
    if cut := sum(api.finished.cut_short(output, settings, lm.vocabulary) for output in outputs):
        told = "raise --max-tokens, or close them in time with --within N"
        note(f"note: {cut} of {len(outputs)} texts were cut before they had their form; {told}.")
    if figure is not None:
        api.figures.save(found.figure(), figure)
    if as_json:
        dump(found.record())
    else:
        write(found.table(kind) if kind else report(found, settings.temperature == 0))
        write(f"\n{found.bibtex()}" if bibtex else "")


def prompts_of(file: str) -> list[str]:
    """The prompts of a file, blank lines left out."""
    lines = [(number, line) for number, line in enumerate(read_file(file).splitlines(), 1) if line.strip()]
    if not lines:
        raise BadRequest(f"{file} has no prompts: every line is empty.")
    if not file.endswith(".jsonl"):
        return [line for _, line in lines]
    return [_prompt(line, f"{file}, line {number}") for number, line in lines]


def _prompt(line: str, where: str) -> str:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise BadRequest(f"{where}: is not JSON ({error}).") from None
    found = data.get("prompt", data.get("turns")) if isinstance(data, dict) else None
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, str):
        raise BadRequest(f'{where}: expected an object with "prompt", a text, or "turns", a list of texts.')
    return found

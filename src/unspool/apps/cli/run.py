"""`unspool run`: one prompt, one text (or several), token by token, and what it must be."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ... import api, recipes
from .group import FORCED, Constraining, Grouped, SamplingOptions, method_option, option, options
from .loading import Loading
from .terminal import CUT, INTERRUPTED, Sketch, dump, note, read_prompt, write

if TYPE_CHECKING:
    from ...api.lm import LM
    from ...api.settings import Settings
    from ...api.writer import Event, Output


USUAL = 8  # tokens of a hole whose mark has no number
MOST = 9999  # tokens of a hole at most
_MARK = re.compile(r"_{3,}(?:\(([0-9]+)\))?")


class Marked(NamedTuple):
    """A prompt with marks, taken apart: the text before the first hole, its tokens, and all that stands behind it."""

    before: str
    holes: int
    behind: tuple[str | int, ...]

    @property
    def last(self) -> str:
        """The text behind the last hole."""
        return str(self.behind[-1]) if self.behind and isinstance(self.behind[-1], str) else ""


def marked(text: str) -> Marked:
    """Take a prompt apart at its marks: ___ is a hole of 8 tokens, ___(12) one of 12."""
    parts: list[str | int] = []
    at = 0
    for mark in _MARK.finditer(text):
        told = (mark[1] or str(USUAL)).lstrip("0")
        if not told or len(told) > len(str(MOST)):
            raise click.UsageError(f"--infill: {mark[0][:40]} is no hole; expected 1 to {MOST} tokens, as in ___(12)")
        parts += [text[at : mark.start()], int(told)]
        at = mark.end()
    if len(parts) < 2:
        raise click.UsageError("--infill needs a hole in the prompt: write ___ where text is missing, or ___(12)")
    before, holes, *behind = [*parts, text[at:]]
    if not before:
        raise click.UsageError("--infill needs some text before the first hole")
    return Marked(str(before), int(holes), tuple(part for part in behind if part != ""))


@dataclass(frozen=True)
class InfillOptions:
    """What stands behind the text that is asked for."""

    HEADING = "Infilling"

    suffix: str | None = option(
        "--suffix", metavar="TEXT", help="What stands behind the text; for methods that fill holes, and FIM models."
    )
    infill: bool = option(
        "--infill", is_flag=True, help="PROMPT has holes: ___ is one of 8 tokens, ___(12) of 12. Implies --raw."
    )


@dataclass(frozen=True)
class Reporting:
    """What to report of the texts, and in which form."""

    samples: int | None = option("-n", "--samples", type=int, metavar="N", help="N texts; the prompt is read once.")
    logprobs: int | None = option(
        "--logprobs", type=int, metavar="K", help="Report every token's logprob and K alternatives (with --json)."
    )
    json: bool = option("--json", is_flag=True, help='One JSON object; with -n above 1 the texts are in "samples".')
    quiet: bool = option("-q", "--quiet", is_flag=True, help="No trace on stderr.")


@click.command(cls=Grouped, short_help="Continue or answer a prompt.")
@click.argument("prompt", required=False)
@click.option("-f", "--file", metavar="FILE", help="Read the prompt from a file; - is stdin.")
@method_option("plain")
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@options(Reporting, "reporting")
@options(Constraining, "constraining")
@options(InfillOptions, "infilling")
@options(Loading, "loading")
@options(SamplingOptions, "drawing")
def run(
    prompt: str | None,
    file: str | None,
    method: str,
    system: str | None,
    reporting: Reporting,
    constraining: Constraining,
    infilling: InfillOptions,
    loading: Loading,
    drawing: SamplingOptions,
) -> int:
    """Continue or answer PROMPT.

    Without PROMPT and --file, or where PROMPT is -, the prompt is read from stdin. If the model has a chat template the
    prompt is a user's message, unless --raw. The text goes to stdout as it arrives, a short trace to stderr. Ctrl-C
    ends it with what there is: the text so far or, of a search, the best that it has found. Where the text must have a
    form and no method is named, what the form forces is drafted (`forced`): the same text in fewer forwards; where
    text stands behind it, a model that fills holes does that (`confident`). The exit status is 3 if a text that must
    have a form was cut before it had it.
    """
    if reporting.logprobs is not None and not reporting.json:
        raise click.UsageError("--logprobs are reported in JSON; add --json")
    if constraining.reads_stdin() and (file == "-" or (file is None and prompt in (None, "-"))):
        raise click.UsageError("the prompt and the constraint cannot both be read from stdin; give one as a file")
    text = read_prompt(prompt, file, loading.raw)
    settings = drawing.settings(n=reporting.samples, logprobs=reporting.logprobs)
    settings = replace(settings, constraint=constraining.form(settings.max_tokens), suffix=infilling.suffix or ())
    if settings.constraint is not None and _unsaid("method"):
        method = FORCED
    cloze = marked(text) if infilling.infill else None
    if cloze is not None:
        if infilling.suffix is not None:
            raise click.UsageError("--suffix and --infill: what stands behind is said twice; give one of them")
        if not _unsaid("max_tokens"):
            raise click.UsageError("--max-tokens and --infill: every hole has its own size; write it as in ___(12)")
        text, loading = cloze.before, replace(loading, raw=True)
        settings = replace(settings, max_tokens=cloze.holes, suffix=cloze.behind)
    loading.check((method,))
    lm = loading.load(reporting.quiet)
    if settings.suffix and _unsaid("method"):
        method = api.infill.usual(lm.model, method)
    loading.prepare(lm, (method,))
    asked = loading.prompt(lm, text, system)
    if reporting.json:
        outputs, code = _finished(lambda: lm.samples(asked, settings, method))
        about = {"model": loading.model, "draft": loading.draft, "small": loading.small, "method": method}
        about["verify"] = recipes.composition.verifier_of(recipes.methods.method(method))
        dump({**about, **_record(outputs), "seed": settings.seed, "settings": _plain(settings)})
        return code or _cut(outputs, settings, lm)
    before, behind = ("", "") if cloze is None else (cloze.before, cloze.last)
    if settings.n == 1 and cloze is None:
        events, sketch = lm.stream(asked, settings, method), Sketch(lm.vocabulary.piece)
        outputs, code = _finished(lambda: [stream(events, sketch)])
        if not code and (sys.stdout.isatty() or not reporting.quiet):
            _end_line(outputs[0].text)
    else:
        outputs, code = _finished(lambda: lm.samples(asked, settings, method))
        for number, output in enumerate(outputs, 1):
            title = f"--- sample {number} of {settings.n} ---\n" if settings.n > 1 else ""
            write(f"{title}{before}{output.text}{behind}\n")
    for number, output in enumerate(outputs if not reporting.quiet else [], 1):
        which = "" if settings.n == 1 else f"sample {number}: "
        note(f"{which}[{output.reason}] {output.trace}")
        if output.note and output.note != api.ignored.PLAIN:  # which was said before it began
            note(f"note: {output.note}")
    return code or _cut(outputs, settings, lm)


def _unsaid(option: str) -> bool:
    """Whether an option of this command was not given."""
    return click.get_current_context().get_parameter_source(option) is click.core.ParameterSource.DEFAULT


def _cut(outputs: list[Output], settings: Settings, lm: LM) -> int:
    """The exit status for texts that ended before they had the form that they must have; says so, quiet or not."""
    if settings.constraint is None:
        return 0
    cut = [output for output in outputs if api.finished.cut_short(output, settings, lm.vocabulary)]
    if not cut:
        return 0
    note(
        f"unspool: the text was cut ({cut[0].reason}) before it had its form; raise --max-tokens, or close it in time "
        f"with --within {settings.max_tokens}."
    )
    return CUT


def _finished(write_all: Callable[[], list[Output]]) -> tuple[list[Output], int]:
    """The texts and the exit status; if Ctrl-C comes first, what there is of them by then."""
    try:
        return write_all(), 0
    except api.writer.Interrupted as stopped:
        rows = sum(output.trace.rows["target"] for output in stopped.outputs)
        found = any(output.text for output in stopped.outputs)
        what = "what there is by then is above" if found else "there is no text by then"
        note(f"unspool: interrupted after {rows} model rows; {what}")
        return stopped.outputs, INTERRUPTED


def stream(events: Generator[Event, None, Output], sketch: Sketch) -> Output:
    """Print a text as it arrives and return all of it; if Ctrl-C comes first, print what there is by then."""
    printed = ""
    try:
        while True:
            try:
                event = next(events)
                sketch.event(event)
                printed += event.text
            except StopIteration as end:
                output: Output = end.value
                return output
            except api.writer.Interrupted:
                raise
            except KeyboardInterrupt as stopped:  # it came while an event was being printed
                events.throw(stopped)
    except api.writer.Interrupted as stopped:
        sketch.clear()
        write(stopped.outputs[0].text[len(printed) :])
        _end_line(stopped.outputs[0].text)
        raise
    except BaseException:
        sketch.clear()
        raise


def _end_line(text: str) -> None:
    """Let the trace begin on a line of its own; stdout gets a newline only if it is a terminal, else just the text."""
    if not text.endswith("\n"):
        print(file=sys.stdout if sys.stdout.isatty() else sys.stderr, flush=True)


def _record(outputs: list[Output]) -> dict[str, Any]:
    records = [output.record() for output in outputs]
    return records[0] if len(records) == 1 else {"samples": records}


def _plain(settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "logit_bias": {str(token): bias for token, bias in settings.logit_bias.items()}}

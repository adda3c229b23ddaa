"""`unspool batch`: a file of requests in, a file of answers out."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

from ... import api, models
from ...core.errors import BadRequest
from ...core.files import DELTAS, required
from ...models.address import model_folder
from ...models.catalog import CATALOG
from .. import batch as batches
from .. import server
from ..cluster import crew, joined
from .group import Grouped, known_method, methods_like, option, options
from .loading import Loading
from .terminal import INTERRUPTED, dump, note, status

if TYPE_CHECKING:
    from ..batch import BatchJournal, LineDefaults, LineFile
    from ..batch.answer_file import Tally
    from ..batch.batch_work import Answering


@dataclass(frozen=True)
class BatchDefaults:
    """What holds for the bodies that say nothing about it."""

    method: str = option(
        "--method",
        callback=known_method,
        shell_complete=methods_like,
        default="plain",
        show_default=True,
        help="A name of `unspool methods`.",
    )
    temperature: float | None = option(
        "-t", "--temperature", type=float, metavar="T", help="0 is greedy; 1, the default, is the model's own law."
    )
    top_k: int | None = option("--top-k", type=int, metavar="K", help="Only the K most probable tokens.")
    top_p: float | None = option("--top-p", type=float, metavar="P", help="The fewest tokens with mass P.")
    min_p: float | None = option("--min-p", type=float, metavar="P", help="At least P times the best one's.")
    stop: tuple[str, ...] = option("--stop", multiple=True, metavar="TEXT", help="End before TEXT. Repeatable.")
    max_tokens: int | None = option(
        "--max-tokens", type=int, metavar="N", help="Stop after N tokens (default: 1024 in a chat, else 16)."
    )
    seed: int = option("-s", "--seed", type=int, default=0, help="A line's seed is N plus its number.")

    def reading(self, name: str) -> LineDefaults:
        """How lines are read; refuses what would be refused of every line."""
        values = {key: getattr(self, key) for key in ("temperature", "top_k", "top_p", "min_p")}
        values |= {"stop": list(self.stop) or None, "max_tokens": self.max_tokens}
        try:
            batches.LineDefaults(name)(0, {"prompt": "", **values})
        except server.refusal.Refusal as refused:
            raise BadRequest(f"{refused.message} (an option of this command, for bodies that say nothing)") from None
        given = {key: value for key, value in values.items() if value is not None and key != "max_tokens"}
        return batches.LineDefaults(name, self.method, given, self.max_tokens, self.seed)


@dataclass(frozen=True)
class Spread:
    """On which machines."""

    ray: bool = option("--ray", is_flag=True, help="By workers on a Ray cluster; RAY_ADDRESS names it.")
    workers: int | None = option(
        "--workers", type=click.IntRange(1), metavar="N", help="How many (with --ray); as many as fit, unless told."
    )
    cpus: float = option("--cpus", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Of each worker.")
    gpus: float | None = option(
        "--gpus", type=click.FloatRange(0), metavar="N", help="Of each worker; 1 where there are any, unless told."
    )


@click.command(cls=Grouped, short_help="Answer a file of requests.")
@click.argument("requests", metavar="IN.jsonl")
@click.argument("answers", metavar="OUT.jsonl")
@click.option("--parallel", type=click.IntRange(1), default=32, show_default=True, help="Texts written at a time.")
@click.option("--name", help="What the model is called in the file; the name it is loaded by, unless told.")
@click.option("--overwrite", is_flag=True, help="Replace OUT.jsonl if it is there.")
@click.option("--fresh", is_flag=True, help="Forget what an unfinished run has done.")
@click.option("--json", "as_json", is_flag=True, help="The summary as a JSON object on stdout.")
@options(Spread, "spread")
@options(BatchDefaults, "unless")
@options(Loading, "loading")
def batch(
    requests: str,
    answers: str,
    parallel: int,
    name: str | None,
    overwrite: bool,
    fresh: bool,
    as_json: bool,
    spread: Spread,
    unless: BatchDefaults,
    loading: Loading,
) -> int:
    """Answer every line of IN.jsonl by one line of OUT.jsonl, in the same order.

    A line is OpenAI's batch line ({"custom_id", "method", "url", "body"}) or just a body, with `messages` or a
    `prompt`. What is wrong with a line is said in its answer. A run that was interrupted or killed goes on when the
    same command is given again: what is done stands in OUT.jsonl.part. docs/batch.md says more.
    """
    if loading.raw:
        raise click.UsageError("--raw is not for a batch: a line with a prompt goes on from it as it stands")
    if spread.workers is not None and not spread.ray:
        raise click.UsageError("--workers are Ray's; add --ray, or leave it out: one engine writes many texts")
    source, output = Path(requests), batches.answer_file.AnswerFile(Path(answers), overwrite)
    loading.check((unless.method,))
    here = Path(loading.model).exists()
    reading = unless.reading(name or (Path(loading.model).name if here else loading.model))
    if source.resolve() == output.path.resolve():
        raise BadRequest(f"{source} is both input and output; name another output")
    began = perf_counter()
    with status(f"reading {source} …"):
        lines = batches.LineFile.of(source)
    output.check()
    with output.held():
        if fresh:
            output.part.unlink(missing_ok=True)
        with status("looking at the model's files …"):
            contents = _contents(loading, here=not spread.ray)
        with batches.BatchJournal(output.part, _about(loading, reading), lines, contents) as journal:
            output.check_rest(journal)
            if journal.done:
                note(f"{output.part} holds {journal.done} of {len(lines)} answers; they are not made again")
            try:
                if journal.done < len(lines):
                    answering = _fleet if spread.ray else _alone
                    with answering(spread, loading, reading, parallel) as tries:
                        _answer(lines, journal, tries)
                lines.check()
                tally = output.finish(journal)
            except KeyboardInterrupt:
                journal.sync()
                note(
                    f"interrupted; {journal.done} of {len(lines)} answers are kept in {output.part}, "
                    "and the same command goes on from there"
                )
                return INTERRUPTED
    _report(tally, journal, perf_counter() - began, answers, as_json)
    return 0


def _about(loading: Loading, reading: LineDefaults) -> dict[str, Any]:
    """All that an answer depends on besides its line; room, parallel and workers only say how fast it comes."""
    models = {key: _place(getattr(loading, key)) for key in ("model", "draft", "small", "heads", "adapter")}
    how = {
        key: getattr(loading, key) for key in ("dtype", "quantization", "device", "runtime", "batch_invariant", "ranks")
    }
    read = asdict(reading)
    return {**models, **how, "name": read.pop("model"), "max_tokens": read.pop("tokens"), **read.pop("values"), **read}


def _place(model: str | None) -> str | None:
    """A model by name as it is, one by path the same from wherever the command is given."""
    return str(Path(model).resolve()) if model is not None and Path(model).exists() else model


def _contents(loading: Loading, here: bool) -> dict[str, str]:
    """What is in the files of every model; a path or a name alone would not tell that they were replaced.

    `here` says whether the models are loaded on this machine. Else only those that lie here are looked at.
    """
    files = {role: _files(getattr(loading, role), here) for role in ("model", "draft", "small")}
    heads = models.address.heads_of(loading.model, loading.heads)
    files["heads"] = [] if heads is None or not heads.is_file() else [heads]
    files["adapter"] = [] if loading.adapter is None else _files(loading.adapter, here=False)
    return {role: " ".join(map(models.fingerprint.fingerprint, found)) for role, found in files.items() if found}


def _files(model: str | None, here: bool) -> list[Path]:
    """The files or folders that a model is read from, as far as they can be told."""
    if model is None or api.self_draft.is_shortcut(model) or model == api.trained_draft.NATIVE:
        return []
    if models.address.is_hub_id(model):
        return [models.address.path(model)] if here else []
    listing = CATALOG.get(model)
    if here:
        models.address.path(model)  # fetched now, if it never was
    base = Path(model).expanduser() if listing is None else model_folder(listing.folder) / listing.file
    found = (
        [base]
        if listing is None or listing.delta is None
        else [base, required(DELTAS, listing.delta, f"the model {model}")]
    )
    return [file for file in found if file.exists()]


@contextmanager
def _alone(_: Spread, loading: Loading, reading: LineDefaults, parallel: int) -> Iterator[Sequence[Answering]]:
    """By one engine here; what fails among others is tried once more, by itself."""
    lm = loading.load()
    loading.prepare(lm, (reading.method,))
    alone, scribe = batches.batch_work.alone, batches.LineWriter(lm, reading, parallel)
    try:
        yield partial(alone, scribe, 2 * parallel), partial(alone, scribe, 1)
    finally:
        scribe.stop()


@contextmanager
def _fleet(spread: Spread, loading: Loading, reading: LineDefaults, parallel: int) -> Iterator[Sequence[Answering]]:
    """By the workers of a cluster, in the same two ways."""
    with ExitStack() as held:
        with status("joining the Ray cluster …"):
            held.enter_context(joined("`unspool batch --ray`"))
        workers = crew(spread.workers, spread.cpus, spread.gpus, loading.device)
        fleet = batches.fleet.Fleet(partial(loading.load, quiet=True), reading, workers, parallel, 2 * parallel)
        yield fleet, replace(fleet, ahead=1)


def _answer(lines: LineFile, journal: BatchJournal, tries: Sequence[Answering]) -> None:
    failed, hidden = 0, not sys.stderr.isatty()
    with tqdm(total=len(lines), initial=journal.done, unit="line", leave=False, disable=hidden) as bar:
        for record in batches.batch_work.work(lines, journal, tries):
            failed += record["error"] is not None
            bar.update(1)
            if failed:
                bar.set_postfix_str(f"{failed} failed")


def _report(tally: Tally, journal: BatchJournal, seconds: float, answers: str, as_json: bool) -> None:
    if as_json:
        dump({"output": answers, **asdict(tally), "before": journal.before, "seconds": round(seconds, 3)})
        return
    failed = f", {tally.failed} of them with an error" if tally.failed else ""
    before = f" ({journal.before} of them before)" if journal.before else ""
    note(
        f"{answers}: {tally.lines} lines{before}{failed}; {tally.prompt_tokens} tokens read, "
        f"{tally.completion_tokens} written; {seconds:.1f} s"
    )

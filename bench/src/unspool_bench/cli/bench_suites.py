"""`unspool bench spec | long | throughput | quality`: methods and peers on the same cases, with intervals."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from tqdm import tqdm

import unspool_bench as benches
from unspool import api
from unspool.api.papers import FORMATS
from unspool.apps.cli.group import Grouped, known_method, methods_like, option, options
from unspool.apps.cli.loading import Loading
from unspool.apps.cli.root import starting
from unspool.apps.cli.terminal import INTERRUPTED, dump, note, table, write
from unspool.core.errors import BadRequest

if TYPE_CHECKING:
    from ..bench_case import Suite
    from ..contender import Contender
    from ..standing import ConfidenceInterval, Standing

METHODS = ("lookup", "suffix", "merge", "auto")
QUICK = 1  # case per family
ALL = "all"  # families together


@dataclass(frozen=True)
class SuiteOptions:
    """How a suite is run."""

    methods: tuple[str, ...] = option(
        "--method",
        callback=known_method,
        shell_complete=methods_like,
        multiple=True,
        metavar="SPEC",
        help="A method, as in lookup:ngram=2. Repeatable.",
    )
    limit: int | None = option("--limit", type=click.IntRange(1), metavar="N", help="Cases per family.")
    most: int = option("--max-tokens", type=click.IntRange(1), default=128, show_default=True, help="Per text.")
    repeats: int = option("--repeats", type=click.IntRange(1), default=1, show_default=True)
    temperature: float = option("-t", "--temperature", type=click.FloatRange(0.0), default=0.0, show_default=True)
    seed: int = option("-s", "--seed", type=int, default=0, show_default=True)
    quick: bool = option("--quick", is_flag=True, help="One case per family, 48 tokens each.")
    no_peers: bool = option("--no-peers", is_flag=True, help="Without transformers and llama.cpp.")
    out: str = option("--out", metavar="FOLDER", default="results", show_default=True, help="Where journals are kept.")
    fresh: bool = option("--fresh", is_flag=True, help="Forget what the journal holds.")
    as_json: bool = option("--json", is_flag=True, help="The table as a list of objects.")
    kind: str | None = option("--format", type=click.Choice(FORMATS), help="A table for a paper.")
    figure: str | None = option("--figure", metavar="FILE", help="Draw the speed-ups, as .svg or .pdf.")

    @property
    def tokens(self) -> int:
        """Tokens per text."""
        return min(self.most, 48) if self.quick else self.most

    def of_each(self, usual: int) -> int:
        """Cases per family."""
        return self.limit or (QUICK if self.quick else usual)


@click.command(cls=Grouped, short_help="Spec-Bench's six families: speed and acceptance.")
@click.option("--data", metavar="FOLDER", help="The folder of Spec-Bench's question.jsonl; else prompts of our own.")
@options(SuiteOptions, "racing")
@options(Loading, "loading")
def spec(data: str | None, racing: SuiteOptions, loading: Loading) -> int:
    """Race methods against plain decoding and peers on translation, summaries, questions, sums, retrieval and chat.

    Every method runs on every prompt from a cold cache. What is measured is kept at once in FOLDER/spec.jsonl: run the
    same command again after an interruption and it goes on. Speed-ups are sums over sums with 95 % intervals over
    prompts; texts that differ from plain greedy decoding get a verdict. `unspool report` makes a page of it.
    """
    return _raced(
        benches.suites.Spec(None if data is None else Path(data), racing.of_each(2), racing.tokens), racing, loading
    )


@click.command(cls=Grouped, short_help="Long prompts to copy from.")
@options(SuiteOptions, "racing")
@options(Loading, "loading")
def long(racing: SuiteOptions, loading: Loading) -> int:
    """Race methods on prompts of some hundred to some thousand tokens; kept in FOLDER/long.jsonl."""
    lines = racing.limit or (1 if racing.quick else len(benches.suites.LINES))
    return _raced(benches.suites.Long(lines, racing.tokens), racing, loading)


@click.command(cls=Grouped, short_help="Batches of growing size.")
@options(SuiteOptions, "racing")
@options(Loading, "loading")
def throughput(racing: SuiteOptions, loading: Loading) -> int:
    """Race methods on batches: tokens per second of all texts together; kept in FOLDER/throughput.jsonl."""
    sizes = racing.limit or (2 if racing.quick else len(benches.suites.BATCHES))
    return _raced(benches.suites.Throughput(sizes, racing.tokens), racing, loading)


@click.command(cls=Grouped, short_help="Sums, programs and instructions whose answers are checked.")
@click.option("--data", metavar="FOLDER", required=True, help="Holds gsm8k/, humaneval/, mbpp/ and ifeval/.")
@click.option("--task", "tasks", multiple=True, metavar="NAME", help="gsm8k, humaneval, mbpp or ifeval. Repeatable.")
@options(SuiteOptions, "racing")
@options(Loading, "loading")
def quality(data: str, tasks: tuple[str, ...], racing: SuiteOptions, loading: Loading) -> int:
    """Count right answers; programs run in a sandbox without network, files or time to spare.

    Kept in FOLDER/quality.jsonl. Exact methods must score as plain decoding does; approximate ones show what they
    lose.
    """
    chosen = tasks or tuple(benches.suites.FILES)
    suite = benches.suites.Quality(Path(data), chosen, racing.of_each(20), racing.tokens)
    return _raced(suite, racing, loading)


def _raced(suite: Suite, racing: SuiteOptions, loading: Loading) -> int:
    with starting():
        plain, own = benches.contender.PLAIN, benches.contender.Ours
    device_of, dtype_of = api.loader.device_of, api.loader.dtype_of
    methods = tuple(dict.fromkeys(spec for spec in racing.methods or METHODS if spec != plain))
    settings = api.settings.Settings(temperature=racing.temperature, seed=racing.seed)
    settings.validate()
    if racing.figure is not None:
        api.figures.check(racing.figure)
    cases = suite.cases()
    if not cases:
        raise BadRequest(f"the suite {suite.name} has no cases")
    loading.check(methods)
    lm = loading.load()
    loading.prepare(lm, methods)
    contenders: list[Contender] = [own(lm, spec) for spec in (plain, *methods)]
    if not racing.no_peers:
        batches = max(len(case.prompts) for case in cases) > 1 or racing.temperature > 0
        how = loading.model, loading.draft, loading.dtype, loading.device
        contenders += benches.peers.peers(*how, lm, batches, racing.quick)
    cost = lm.price() if lm.priced else None
    about: dict[str, Any] = {
        "suite": suite.name,
        "source": suite.source,
        **{name: getattr(loading, name) for name in ("model", "draft", "batch_invariant", "quantization")},
        "dtype": str(dtype_of(loading.dtype, device_of(loading.device))).removeprefix("torch."),
        "device": device_of(loading.device),
        "max_tokens": racing.tokens,
        "temperature": racing.temperature,
        "seed": racing.seed,
        "machine": benches.machine.machine(),
        "cost": None if cost is None else {"rows": list(cost.rows), "seconds": list(cost.times)},
    }
    file = Path(racing.out) / f"{suite.name}.jsonl"
    if racing.fresh:
        file.unlink(missing_ok=True)
    journal = benches.journal.Journal(file, about, frozenset({"machine", "cost"}))
    race = benches.bench_race.Race(lm, contenders, cases, settings, racing.repeats)
    total = sum(1 for _ in race.plan())
    if len(journal):
        note(f"{file} holds {len(journal)} measurements; they are not made again")
    interrupted = False
    with tqdm(total=total, unit="text", leave=False, disable=not sys.stderr.isatty()) as bar:
        try:
            race.run(journal, lambda: bar.update(1))
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        note(f"interrupted; {len(journal)} measurements are kept in {file}, and the same command goes on from there")
    found = benches.standing.standings(journal)
    if racing.figure is not None:
        api.figures.save(drawn(found, f"{suite.name}, {loading.model}"), racing.figure)
    if racing.kind is not None:
        write(api.papers.table(racing.kind, *cells(found)))
    elif racing.as_json:
        dump([each.record() for each in found])
    elif found:
        write(shown(found) + "\n")
        note(f"kept in {file}; `unspool report {racing.out}` makes a page of it")
    return INTERRUPTED if interrupted else int(any(each.bugs for each in found))


def drawn(found: Sequence[Standing], title: str) -> str:
    """Speed-ups over all families as bars, each with its interval."""
    named = [(each, each.contender if each.family == ALL else f"{each.contender}, {each.family}") for each in found]
    some = [(each, name) for each, name in named if each.family == ALL] or named
    made = [api.bars.Bar(name, each.speed_up.value, *_ends(each.speed_up)) for each, name in some]
    return str(api.bars.bars(made, title, "times plain decoding's speed, with 95 % intervals"))


def _ends(found: ConfidenceInterval) -> tuple[float | None, float | None]:
    return (None, None) if math.isnan(found.low) else (found.low, found.high)


def shown(found: Sequence[Standing]) -> str:
    """The table on a terminal."""
    return table(*cells(found), "speed-up,tokens/forward,tokens/s,first token,same text")


def cells(found: Sequence[Standing]) -> tuple[list[str], list[list[str]]]:
    """The heads and rows of the table."""
    marked = any(each.right is not None for each in found)
    heads = ["contender", "family", "speed-up", "95 %", "tokens/forward", "tokens/s", "first token", "same text"]
    rows = [
        [
            each.contender,
            each.family,
            f"{each.speed_up.value:.2f}",
            _range(each.speed_up),
            f"{each.tokens_per_forward:.2f}",
            f"{each.tokens_per_second:.1f}",
            "–" if each.time_to_first_token is None else f"{1e3 * each.time_to_first_token:.0f} ms",
            _same(each),
            *([_right(each.right)] if marked else []),
        ]
        for each in found
    ]
    return [*heads, *(["right"] if marked else [])], rows


def _range(found: ConfidenceInterval) -> str:
    return "–" if math.isnan(found.low) else f"{found.low:.2f}–{found.high:.2f}"


def _same(each: Standing) -> str:
    if each.same is None:
        return "–"
    ties = len(each.parted) - each.bugs
    said = f"{each.same} of {each.texts}"
    return said + (f", {ties} near ties" if ties else "") + (f", {each.bugs} BUGS" if each.bugs else "")


def _right(found: ConfidenceInterval | None) -> str:
    return "–" if found is None else f"{found.value:.0%} ({found.low:.0%}–{found.high:.0%})"

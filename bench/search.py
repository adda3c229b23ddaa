"""Search at equal model rows: what does it make of a model that is too small for its problems?

    python bench/search.py [--data FOLDER] [--tasks countdown gsm8k] [--limit 100] [--methods beam vote …] [--json FILE]

--data holds countdown_sudoku/countdown3.jsonl and gsm8k/test.jsonl.gz. Every method may use `--times` rows for every
token of the greedy text (or of the mean greedy text, where that is longer), and is set so that it uses about that; what
is unfinished then counts as it stands. A row is one token that the model reads beyond the prompt. Greedy and one
sample, which need one row per token, are the measure. `(likely)` chooses by the model's own
likelihood; `(checked)` by a score of the steps that knows the numbers and the target of Countdown, as the prompt tells
them, and no solution. Votes, agreement and best-of-n look at the same texts. Intervals are Wilson's, at 95 %.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from puzzles import TASKS, Problem, Task
from record import save

from unspool.api.lm import LM, SCRATCH
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.core.asks import Decoding, Scores, Written
from unspool.core.chance import Chance, Philox
from unspool.core.claim import Method, texts_of
from unspool.core.stop import Stop
from unspool.core.warp.warp import Warp
from unspool.recipes.methods import fitted
from unspool.rules.constrain import FullMask, Potential
from unspool.rules.search import AStar, Beam, Branch, Chaotic, Diverse, Foresight, Several, Smc, Stochastic
from unspool.rules.search.choose import agree, best, overlap, vote
from unspool.rules.search.mark import Leaning, LikelihoodMark, Mark, RewardMark
from unspool.rules.search.rollout import Border
from unspool.rules.search.search_text import Text
from unspool.rules.search.several import FOREVER
from unspool.runtime.engine.engine import Engine
from unspool_bench.standing import wilson

DATA = Path(__file__).parents[2] / "shared" / "data"
WARM = 0.7
GREEDY = "greedy"
SAMPLES = "samples"  # whole texts, for everything that chooses among them


@dataclass(eq=False)
class Try:
    """One problem under one method: what it wrote, and how many rows that took."""

    problem: Problem
    number: int
    budget: int  # rows that it may use
    rows: int = 0
    texts: list[tuple[str, float]] = field(default_factory=list)  # with their mean log p, best first
    tokens: int = 0
    failed: str = ""


def counted(decoder: Method, one: Try) -> Method:
    """The same method; the rows of its answers are counted, the prompt as one."""

    def decode(text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        decoding, reply, read = decoder(text, chance, warp, stop), None, False
        try:
            while True:
                reply = yield decoding.send(reply)
                if isinstance(reply, Written):
                    one.rows += len(reply.tokens)
                elif isinstance(reply, Scores):
                    one.rows += reply.rows if read else 1
                read = read or isinstance(reply, (Written, Scores))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            decoding.close()

    return decode


@dataclass(frozen=True)
class Way:
    """A method for one problem, and the temperature it wants."""

    make: Callable[[Try, LM, int, Task], Method]
    temperature: float = WARM
    checked: bool = False  # whether it needs a score of the steps


def _said(lm: LM, tokens: tuple[int, ...]) -> str:
    """The text of some tokens; one that has ended ends its line."""
    return lm.vocabulary.decode(tokens) + "\n" * (tokens[-1:] != () and tokens[-1] in lm.vocabulary.eos)


def _checked(one: Try, lm: LM) -> Mark:
    worth = one.problem.worth
    assert worth is not None
    return RewardMark(lambda tokens: worth(_said(lm, tokens)))


def _potential(one: Try, lm: LM) -> Potential:
    worth = one.problem.worth
    assert worth is not None

    def log_worth(tokens: tuple[int, ...]) -> float:
        return math.log(worth(_said(lm, tokens)))

    return Potential(log_worth, log_worth)


def _watch(one: Try, lm: LM) -> Callable[[Sequence[Text]], None]:
    def told(found: Sequence[Text]) -> None:
        one.texts = [(lm.vocabulary.decode(t.tokens), t.logp / max(1, len(t.tokens))) for t in found]

    return told


def _steps(task: Task) -> Border:
    return Border(task.step, 48)


WAYS: dict[str, Way] = {
    GREEDY: Way(lambda one, lm, n, task: fitted("plain", lm.vocabulary), 0.0),
    "one sample": Way(lambda one, lm, n, task: fitted("plain", lm.vocabulary)),
    "beam": Way(lambda one, lm, n, task: Beam(n, rows=one.budget), 0.0),
    "diverse beams": Way(lambda one, lm, n, task: Diverse(n, 1, rows=one.budget), 0.0),
    "stochastic beams (likely)": Way(lambda one, lm, n, task: Stochastic(n, rows=one.budget, watch=_watch(one, lm))),
    "A* (likely)": Way(lambda one, lm, n, task: AStar(n, LikelihoodMark(), _steps(task), one.budget)),
    "A* (checked)": Way(lambda one, lm, n, task: AStar(n, _checked(one, lm), _steps(task), one.budget), WARM, True),
    "foresight (likely)": Way(lambda one, lm, n, task: Foresight(3 * n // 4, 2, border=_steps(task), rows=one.budget)),
    "foresight (checked)": Way(
        lambda one, lm, n, task: Foresight(3 * n // 4, 2, 0.05, _checked(one, lm), _steps(task), one.budget),
        WARM,
        True,
    ),
    "cautious": Way(lambda one, lm, n, task: fitted(f"cautious:rows={one.budget}", lm.vocabulary)),
    "chaotic (likely)": Way(
        lambda one, lm, n, task: Branch(
            Chaotic(top=2), Leaning(LikelihoodMark(), 2.0), Border((), n // 2), 1, rows=one.budget, texts=3
        ),
        0.0,
    ),
    "smc, p⁴ (likely)": Way(lambda one, lm, n, task: Smc(n, FullMask(4.0), rows=one.budget), 1.0),
    "smc (checked)": Way(lambda one, lm, n, task: Smc(n, potential=_potential(one, lm), rows=one.budget), WARM, True),
    "best of n (likely)": Way(
        lambda one, lm, n, task: Branch(Several(n), LikelihoodMark(), Border((), FOREVER), rows=one.budget, texts=n + 1)
    ),
}
CHOSEN = ("vote", "agreement (MBR)", "best of n (checked)", "any of n (an upper bound)")


def budgets(greedy: list[Try], times: int) -> list[int]:
    """`times` rows for every token of the greedy text, or of the mean one where that is longer."""
    mean = sum(one.tokens for one in greedy) / len(greedy)
    return [times * math.ceil(max(one.tokens, mean)) for one in greedy]


def run(
    lm: LM, task: Task, way: Way, budget: Sequence[int], times: int, batch: int, streams: int = 1
) -> tuple[list[Try], float]:
    """All problems by one method, so many at a time; with several streams, so many texts of each."""
    tries = [Try(problem, number, budget[number]) for number, problem in enumerate(task.problems)]
    settings = Settings(temperature=way.temperature, max_tokens=task.most, stop=task.stop)
    stop = replace(settings.stop_rule(lm.vocabulary), spare=SCRATCH)
    began = perf_counter()
    for start in range(0, len(tries), batch):
        engine, jobs = Engine(lm.models(), lm.price), []
        for one in tries[start : start + batch]:
            decoder = way.make(one, lm, times, task)
            texts = texts_of(decoder)
            prompt = lm.encode(one.problem.prompt)
            warp = replace(settings, constraint=one.problem.form).warp(lm.vocabulary)
            room = len(prompt) + task.most * texts + SCRATCH
            for stream in range(streams):
                chance = Philox(one.number, stream)
                jobs.append((one, engine.submit(counted(decoder, one), prompt, chance, warp, stop, room, laws=False)))
        engine.run()
        for one, job in jobs:
            if job.error is not None:  # the search came to nothing
                one.failed = str(job.error)
            tokens = () if job.done is None else job.done.tokens
            one.tokens += len(tokens)
            if not one.texts or streams > 1:
                one.texts.append((lm.vocabulary.decode(tokens), 0.0))
    return tries, perf_counter() - began


def chosen(name: str, one: Try) -> str:
    """One of the texts of a problem, by what the method is called."""
    texts = [text for text, _ in one.texts]
    problem = one.problem
    match name:
        case "vote":
            return vote(texts, problem.answer)
        case "agreement (MBR)":
            return agree(texts, overlap)
        case "best of n (checked)":
            assert problem.worth is not None
            return best(texts, lambda text: problem.worth(text.split("\n")[0] + "\n"))  # type: ignore[misc]
        case "any of n (an upper bound)":
            return next((text for text in texts if problem.solved(text)), texts[0])
    return best(one.texts, lambda pair: pair[1])[0]


def scored(name: str, tries: list[Try], seconds: float) -> dict[str, Any]:
    """What a method has reached."""
    right = sum(one.problem.solved(chosen(name, one)) for one in tries)
    _, low, high = wilson(right, len(tries))
    return {
        "right": right,
        "problems": len(tries),
        "share": round(right / len(tries), 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "rows": sum(one.rows for one in tries),
        "failed": [one.failed for one in tries if one.failed],
        "tokens": sum(one.tokens for one in tries),
        "seconds": round(seconds, 1),
        "texts": [chosen(name, one) for one in tries[:5]],
    }


def show(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """A short table."""
    for task, table in found.items():
        base = table[GREEDY]["rows"]
        print(f"\n{task:28}{'solved':>10}{'95 %':>18}{'rows / greedy':>16}{'seconds':>10}")
        for name, row in table.items():
            interval = f"{100 * row['low']:.1f}–{100 * row['high']:.1f} %"
            said = f"{row['right']} of {row['problems']}"
            print(f"{name:28}{said:>10}{interval:>18}{row['rows'] / base:>16.1f}{row['seconds']:>10.1f}")


def known(path: str | None, asked: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """What an earlier run with the same settings has left."""
    if path is None or not Path(path).exists():
        return {}
    record = json.loads(Path(path).read_text())
    return record["tasks"] if all(record.get(name) == value for name, value in asked.items()) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=[*WAYS, SAMPLES], default=[*WAYS, SAMPLES], metavar="NAME")
    parser.add_argument("--limit", type=int, default=100, help="problems of each task")
    parser.add_argument("--times", type=int, default=8, help="rows per token")
    parser.add_argument("--batch", type=int, default=16, help="problems at a time")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no method after so many")
    parser.add_argument("--json", metavar="FILE", help="what is there already is not done again")
    args = parser.parse_args()
    lm = load(args.model, device=args.device, dtype=args.dtype)
    names = ("model", "device", "dtype", "limit", "times", "batch")
    asked, began = {name: getattr(args, name) for name in names}, perf_counter()
    found = known(args.json, asked)
    for task in (TASKS[name](args.data, args.limit) for name in args.tasks):
        table = found.setdefault(task.name, {})
        greedy, seconds = run(lm, task, WAYS[GREEDY], [0] * len(task.problems), args.times, args.batch)
        table[GREEDY] = scored(GREEDY, greedy, seconds)
        budget = budgets(greedy, args.times)
        for name in args.methods:
            if name in table or (name == SAMPLES and CHOSEN[0] in table) or perf_counter() - began > args.seconds:
                continue
            if name == SAMPLES:
                tries, seconds = run(lm, task, WAYS["one sample"], budget, args.times, args.batch, args.times)
                for choice in CHOSEN:
                    if choice != "best of n (checked)" or task.problems[0].worth is not None:
                        table[choice] = scored(choice, tries, seconds)
            elif not WAYS[name].checked or task.problems[0].worth is not None:
                tries, seconds = run(lm, task, WAYS[name], budget, args.times, args.batch)
                table[name] = scored(name, tries, seconds)
            else:
                continue
            print(f"{task.name}, {name}: {seconds:.0f} s", flush=True)
            if args.json:
                save(args.json, asked | {"tasks": found})
    show(found)


if __name__ == "__main__":
    main()

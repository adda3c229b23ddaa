"""The suites of `unspool bench`: which cases each is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from unspool.core.errors import BadRequest

from .bench_case import BenchCase
from .code import MBPP, HumanEval, read_humaneval, read_mbpp
from .instructions import Instructed, read_instructed
from .prompts import BUILT_IN, ledger_of
from .sandbox import Sandbox
from .sums import read_sums, solved

FAMILIES = ("translation", "summarization", "qa", "math_reasoning", "rag")  # of Spec-Bench; all others are MT-bench's
CHAT = "chat"
LINES = (30, 60, 120)  # of long prompts: about 0.7k, 1.4k and 2.8k tokens
BATCHES = (1, 4, 16)
SHOTS = 4  # worked examples before a sum
TESTED = range(11, 511)  # of MBPP, by its paper
FILES = {
    "gsm8k": "gsm8k/test.jsonl.gz",
    "humaneval": "humaneval/HumanEval.jsonl.gz",
    "mbpp": "mbpp/mbpp.jsonl.gz",
    "ifeval": "ifeval/input_data.jsonl",
}


@dataclass(frozen=True)
class Spec:
    """Spec-Bench's six families: `limit` prompts of each, from its question.jsonl or from our own."""

    folder: Path | None
    limit: int
    most: int
    name: str = "spec"

    @property
    def source(self) -> str:
        """Spec-Bench, or our own prompts."""
        return "prompts of unspool's own" if self.folder is None else "Spec-Bench (question.jsonl), first turns"

    def cases(self) -> Sequence[BenchCase]:
        """Family by family."""
        asked = BUILT_IN if self.folder is None else questions(self.folder)
        return [
            BenchCase(f"{family}-{number}", family, (text,), self.most)
            for family, texts in asked.items()
            for number, text in enumerate(texts[: self.limit], 1)
        ]


def questions(folder: Path) -> dict[str, tuple[str, ...]]:
    """The first turn of every question of Spec-Bench, by family."""
    file = folder / "question.jsonl"
    if not file.is_file():
        raise BadRequest(
            f"{file} is not there. Get data/spec_bench/question.jsonl of github.com/hemingkx/Spec-Bench and say where "
            "it is with --data FOLDER, or leave --data out to use prompts of our own."
        )
    found: dict[str, list[str]] = {}
    for question in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
        family = question["category"] if question["category"] in FAMILIES else CHAT
        found.setdefault(family, []).append(question["turns"][0])
    return {family: tuple(texts) for family, texts in found.items()}


@dataclass(frozen=True)
class Long:
    """Long prompts to copy from: what reading and remembering them costs, and what drafting gains."""

    limit: int
    most: int
    name: str = "long"
    source: str = "numbered lines of unspool's own"

    def cases(self) -> Sequence[BenchCase]:
        """The shortest first."""
        return [BenchCase(f"lines-{n}", f"{n} lines", (ledger_of(n),), self.most) for n in LINES[: self.limit]]


@dataclass(frozen=True)
class Throughput:
    """Batches of growing size: tokens per second of all texts together."""

    limit: int
    most: int
    name: str = "throughput"
    source: str = "prompts of unspool's own"

    def cases(self) -> Sequence[BenchCase]:
        """The smallest first."""
        texts = [text for family in BUILT_IN.values() for text in family]
        return [
            BenchCase(f"batch-{n}", f"batch {n}", tuple(texts[i % len(texts)] for i in range(n)), self.most)
            for n in BATCHES[: self.limit]
        ]


@dataclass(frozen=True)
class Quality:
    """Tasks whose answers can be checked: sums, programs run in a sandbox, instructions."""

    folder: Path
    tasks: tuple[str, ...]
    limit: int
    most: int
    name: str = "quality"

    @property
    def source(self) -> str:
        """The tasks."""
        return ", ".join(self.tasks)

    def cases(self) -> Sequence[BenchCase]:
        """Task by task."""
        return [case for task in self.tasks for case in islice(self._of(task), self.limit)]

    def _of(self, task: str) -> Iterator[BenchCase]:
        if task not in FILES:
            raise BadRequest(f"there is no task {task!r}; choose among {', '.join(FILES)}")
        file = self.folder / FILES[task]
        if not file.is_file():
            raise BadRequest(f"{file} is not there; --data names the folder that holds {FILES[task]}")
        makers = (self._sums, self._functions, self._asserts, self._told)
        return dict(zip(FILES, makers, strict=True))[task](file)

    def _sums(self, file: Path) -> Iterator[BenchCase]:
        first = read_sums(file.with_name("train.jsonl.gz"))[:SHOTS]
        worked = "".join(f"Question: {shown.question}\nAnswer: {shown.worked}\n\n" for shown in first)
        for number, problem in enumerate(read_sums(file)):
            prompt = f"{worked}Question: {problem.question}\nAnswer:"
            yield BenchCase(
                f"gsm8k-{number}", "gsm8k", (prompt,), self.most, ("\nQuestion:",),
                partial(solved, problem=problem), raw=True,
            )  # fmt: skip

    def _functions(self, file: Path) -> Iterator[BenchCase]:
        sandbox = Sandbox()
        for problem in read_humaneval(file):
            yield BenchCase(
                problem.task, "humaneval", (problem.prompt,), self.most, problem.stops,
                partial(_passes, problem, sandbox), raw=True,
            )  # fmt: skip

    def _asserts(self, file: Path) -> Iterator[BenchCase]:
        sandbox = Sandbox()
        for problem in (each for each in read_mbpp(file) if each.task in TESTED):
            yield BenchCase(
                f"mbpp-{problem.task}", "mbpp", (problem.prompt,), self.most, (),
                partial(_passes, problem, sandbox),
            )  # fmt: skip

    def _told(self, file: Path) -> Iterator[BenchCase]:
        for told in read_instructed(file):
            yield BenchCase(
                f"ifeval-{told.key}", "ifeval", (told.prompt,), self.most, (),
                partial(_follows, told),
            )  # fmt: skip


def _passes(problem: HumanEval | MBPP, sandbox: Sandbox, text: str) -> bool:
    """Whether the program that a text makes passes the problem's tests."""
    return problem.case(text).tried(sandbox).passed


def _follows(told: Instructed, text: str) -> bool | None:
    """Whether a text follows every instruction; None if one of them cannot be told."""
    found = told.strict(text)
    return False if False in found else None if None in found else True

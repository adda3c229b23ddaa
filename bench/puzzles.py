"""Problems with a checkable answer for bench/search.py: Countdown and GSM8K, told by a few examples.

What a process score may know of Countdown is what the prompt says: the numbers and the target. It never sees a
solution. GSM8K's answers are known to nothing but the final count.
"""

from __future__ import annotations

import ast
import gzip
import json
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import Any

from unspool.rules.constrain import Form, choices

COUNTDOWN = """Write the target as a sum of all the numbers, each used once, with + - * / and brackets.

Numbers: 3, 5, 2. Target: 16.
Answer: (3 + 5) * 2

Numbers: 40, 7, 12. Target: 21.
Answer: 40 - 12 - 7

Numbers: 15, 60, 22. Target: 67.
Answer: 60 + 22 - 15

Numbers: 9, 81, 4. Target: 13.
Answer: 81 / 9 + 4

Numbers: 6, 50, 20. Target: 76.
Answer: 6 + 50 + 20

Numbers: 11, 3, 30. Target: 63.
Answer: 30 + 11 * 3

"""
GSM8K = """Question: Tom has 3 boxes with 4 pens each. He gives 5 pens away. How many pens has he left?
Answer: Tom has 3 * 4 = 12 pens. He has 12 - 5 = 7 pens left. The answer is 7.

Question: A book costs $8 and a bag costs twice as much. What do both cost together?
Answer: The bag costs 8 * 2 = 16 dollars. Both cost 8 + 16 = 24 dollars. The answer is 24.

Question: Ann reads 10 pages a day for 6 days. The book has 90 pages. How many pages are left?
Answer: Ann reads 10 * 6 = 60 pages. There are 90 - 60 = 30 pages left. The answer is 30.

"""
SHAPE = re.compile(r"[\d\s()+\-*/]*")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
POOR, OPEN, DONE = 0.05, 0.5, 1.0  # the process score of a text with a mistake, one without, and one that is solved


@dataclass(frozen=True)
class Problem:
    """A prompt, whether a text solves it, what it answers (for votes), and what a part of it is worth, if told."""

    name: str
    prompt: str
    solved: Callable[[str], bool]
    answer: Callable[[str], str | None]
    worth: Callable[[str], float] | None = None
    form: Form | None = None  # what the text is bound to


@dataclass(frozen=True)
class Task:
    """Problems of one kind, and where their texts end."""

    name: str
    problems: list[Problem]
    most: int
    step: tuple[str, ...]  # where one step of a solution ends
    stop: tuple[str, ...] = ("\n\n",)


def countdown(folder: Path, limit: int) -> Task:
    """Three numbers and a target."""
    lines = (folder / "countdown_sudoku" / "countdown3.jsonl").read_text().splitlines()[:limit]
    return Task("countdown", [_countdown(json.loads(line)) for line in lines], 24, ("+", "-", "*", "/"), ("\n",))


def countdown_in_form(folder: Path, limit: int) -> Task:
    """The same, bound to expressions that use every number once: whatever is written is a candidate."""
    task = countdown(folder, limit)
    return replace(task, name="countdown in form", problems=[replace(p, form=_form(p)) for p in task.problems])


def _form(problem: Problem) -> Form:
    """All expressions of three numbers."""
    numbers = re.findall(r"\d+", problem.prompt.rsplit("Numbers: ", 1)[1].split(". Target")[0])
    shapes = (" {} {} {} {} {}", " ({} {} {}) {} {}", " {} {} ({} {} {})")
    signs = list(product("+-*/", repeat=2))
    made = {shape.format(a, s, b, t, c) for a, b, c in permutations(numbers) for s, t in signs for shape in shapes}
    return choices(*sorted(made))


def gsm8k(folder: Path, limit: int) -> Task:
    """Word problems of grade-school mathematics."""
    with gzip.open(folder / "gsm8k" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(limit), strict=False)]
    return Task("gsm8k", [_gsm8k(i, row) for i, row in enumerate(rows)], 96, (".", "\n"))


TASKS = {"countdown": countdown, "countdown-in-form": countdown_in_form, "gsm8k": gsm8k}


def _countdown(row: dict[str, Any]) -> Problem:
    numbers, target = [int(x) for x in row["numbers"]], int(row["target"])
    prompt = f"{COUNTDOWN}Numbers: {', '.join(map(str, numbers))}. Target: {target}.\nAnswer:"
    return Problem(
        str(row["id"]),
        prompt,
        lambda text: process(text.split("\n")[0] + "\n", numbers, target) == DONE,
        lambda text: _shown(text.split("\n")[0]),
        lambda text: process(text, numbers, target),
    )


def process(text: str, numbers: list[int], target: int) -> float:
    """What an expression is worth: has it only the numbers that are given, none too often, and when it has ended all
    of them and the right value? The number at the end of an unfinished text may still grow and does not count.
    """
    line, ended, _ = text.partition("\n")
    if SHAPE.fullmatch(line) is None:
        return POOR
    used = Counter(int(x) for x in (re.findall(r"\d+", line) if ended else re.findall(r"\d+(?=\D)", line)))
    given = Counter(numbers)
    if not ended:
        return OPEN if used <= given else POOR
    return DONE if used == given and _value(line) == target else POOR


def _value(line: str) -> Fraction | None:
    """The value of an expression, None if it has none."""

    def of(node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int(value)):
                return Fraction(value)
            case ast.BinOp(left, sign, right):
                return SIGNS[type(sign)](of(left), of(right))
        raise SyntaxError

    try:
        return of(ast.parse(line.strip(), mode="eval").body)
    except (SyntaxError, KeyError, ZeroDivisionError):
        return None


SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def _shown(line: str) -> str | None:
    """The value of an expression, for votes."""
    value = _value(line)
    return None if value is None else str(value)


def _last(text: str) -> str | None:
    """The number that a text ends in: what it says the answer is."""
    found = NUMBER.findall(text.split("\n\n")[0])
    return found[-1].replace(",", "").removesuffix(".") if found else None


def _gsm8k(number: int, row: dict[str, str]) -> Problem:
    gold = row["answer"].rsplit("####", 1)[1].strip().replace(",", "")
    prompt = f"{GSM8K}Question: {row['question'].strip()}\nAnswer:"
    return Problem(f"gsm8k/{number}", prompt, lambda text: _same(_last(text), gold), _last)


def _same(given: str | None, gold: str) -> bool:
    try:
        return given is not None and float(given) == float(gold)
    except ValueError:
        return False

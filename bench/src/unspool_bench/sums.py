"""GSM8K: word problems whose answer is one number, and where that number stands in what a model writes."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

MARK = "####"
NUMBER = re.compile(r"(?<![\w.])[-−]?\s?[$£€]?\s?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])[-−]?\.\d+")
SUM = re.compile(r"<<[^<>]*>>")


@dataclass(frozen=True)
class Sum:
    """A question, its worked solution without the calculator's marks, and the number that it comes to."""

    question: str
    worked: str
    answer: Decimal


def read_sums(path: Path) -> list[Sum]:
    """The problems of a file of the data set."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [sum_of(record["question"], record["answer"]) for record in map(json.loads, lines)]


def sum_of(question: str, solution: str) -> Sum:
    """A problem from its solution, which ends in "#### number"."""
    answer = marked(solution)
    if answer is None:
        raise ValueError(f"the solution has no number after {MARK}: {solution[-60:]!r}")
    return Sum(question, SUM.sub("", solution), answer)


def marked(text: str) -> Decimal | None:
    """The number right after the last "####", the form of the data set; None if there is none."""
    _, mark, after = text.rpartition(MARK)
    found = NUMBER.match(after.strip()) if mark else None
    return None if found is None else _value(found.group())


def last(text: str) -> Decimal | None:
    """The last number of a text, for answers in no form; None if there is none."""
    found = NUMBER.findall(text)
    return _value(found[-1]) if found else None


def solved(text: str, problem: Sum) -> bool:
    """Whether an answer comes to the number: where it is marked if it is, else the last."""
    found = marked(text)
    return (last(text) if found is None else found) == problem.answer


def _value(number: str) -> Decimal:
    return Decimal(re.sub(r"[\s,$£€]", "", number).replace("−", "-"))

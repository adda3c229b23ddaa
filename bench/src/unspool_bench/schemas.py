"""The JSON benchmark: which schemas are taken, whether rightly, and how long a compilation and a mask take."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from math import log2
from random import Random
from time import perf_counter
from typing import Any

from torch import Tensor

from unspool.core.errors import BadRequest, UnspoolError
from unspool.core.extra import brought_by
from unspool.rules.constrain import Constraint
from unspool.rules.constrain.form import FormVocabulary

from .respelling import takes, takes_somehow
from .shelf import SchemaCase
from .stroll import Masked, stroll
from .takers import Taker

TAKEN, REFUSED, LATE, BROKEN = "taken", "refused", "late", "broken"
FINE = 24  # bins per doubling in which times are counted: 3 % apart
SHOWN = 300  # characters of a wrong text that are kept


@dataclass(frozen=True)
class InstanceVerdicts:
    """How instances were judged.

    `rejected` are valid ones that were taken in no spelling that was tried, `admitted` invalid ones that were taken,
    `failed` those at which the constraint gave up with an error; all by their number. `respelt` were taken only with
    their members in another order or their numbers written plainly.
    """

    valid: int = 0
    invalid: int = 0
    respelt: int = 0
    rejected: tuple[int, ...] = ()
    admitted: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Writing:
    """What texts written at random under the masks were.

    `wrong` are those that the package jsonschema calls invalid; `stuck` stood where nothing may follow, `cut` did not
    end in time, `failed` ended in an error, `unjudged` jsonschema cannot judge. `masks` counts them by time.
    """

    written: int = 0
    wrong: tuple[str, ...] = ()
    stuck: int = 0
    cut: int = 0
    failed: int = 0
    unjudged: int = 0
    masks: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class SchemaRow:
    """What one taker made of one schema: taken, refused, late (beyond the time limit) or broken (it crashed)."""

    taker: str
    name: str
    split: str
    outcome: str
    why: str = ""
    refused: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    compile_ms: float = 0.0
    reading: InstanceVerdicts = InstanceVerdicts()
    writing: Writing = field(default_factory=Writing)

    @property
    def right(self) -> bool:
        """True if the schema was taken, no verdict was wrong, and nothing ended in an error."""
        read, wrote = self.reading, self.writing
        wrong = read.rejected or read.admitted or read.failed or wrote.wrong or wrote.failed
        return self.outcome == TAKEN and not wrong

    @property
    def fault(self) -> bool:
        """True if the schema was taken and something was wrong."""
        return self.outcome != REFUSED and not self.right

    def record(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)

    @staticmethod
    def of(record: Mapping[str, Any]) -> SchemaRow:
        """The row that a record was made of."""
        parts = _frozen(record)
        wrote = _frozen(record["writing"])
        wrote["masks"] = {int(bin): count for bin, count in record["writing"]["masks"].items()}
        parts |= {"reading": InstanceVerdicts(**_frozen(record["reading"])), "writing": Writing(**wrote)}
        return SchemaRow(**parts)


@dataclass(frozen=True)
class SchemaJudge:
    """How a constraint is tried: on every instance, and on one random text per entry of `wander`, each of which wanders
    so many tokens before it makes for an end and has at most `most` tokens."""

    words: FormVocabulary
    wander: tuple[int, ...] = (0, 12, 48)
    most: int = 400
    seed: int = 0

    def __call__(self, name: str, taker: Taker, case: SchemaCase) -> SchemaRow:
        """The row of one schema."""
        began = perf_counter()
        try:
            constraint, report = taker.take(case.schema, self.words)
        except BadRequest as error:
            why = str(error).splitlines()[0][:SHOWN]
            return SchemaRow(name, case.name, case.split, REFUSED, why, _blamed(taker, case.schema))
        spent = 1000 * (perf_counter() - began)
        checked = tuple(sorted({use.keyword for use in report.checked}))
        reading, writing = self.read(constraint, case), self.write(constraint, case)
        return SchemaRow(name, case.name, case.split, TAKEN, "", (), checked, spent, reading, writing)

    def read(self, constraint: Constraint, case: SchemaCase) -> InstanceVerdicts:
        """Follow every instance to its end."""
        respelt = 0
        rejected: list[int] = []
        admitted: list[int] = []
        failed: list[int] = []
        for i, (data, valid) in enumerate(case.tests):
            try:
                taken = takes(constraint, data, self.words)
                if valid and not taken:
                    taken = takes_somehow(constraint, data, case.schema, self.words)
                    respelt += taken
            except UnspoolError:
                failed.append(i)
                continue
            if taken != valid:
                (rejected if valid else admitted).append(i)
        good = sum(test.valid for test in case.tests)
        return InstanceVerdicts(good, len(case.tests) - good, respelt, tuple(rejected), tuple(admitted), tuple(failed))

    def write(self, constraint: Constraint, case: SchemaCase) -> Writing:
        """Write texts at random and have jsonschema judge those that end."""
        count: Counter[str] = Counter()
        masks: Counter[int] = Counter()
        wrong: list[str] = []
        valid = judging(case.schema)
        for number, wander in enumerate(self.wander):
            random = Random(f"{self.seed} {case.name} {number}")
            try:
                text = stroll(constraint, self.words, wander, self.most, random, _timed(masks))
            except UnspoolError:
                count["failed"] += 1
                continue
            if not text.finished:
                count["stuck" if text.stuck else "cut"] += 1
                continue
            written = b"".join(map(self.words.piece, text.tokens)).decode("utf-8", "replace")
            verdict = valid(written)
            count["written"] += 1
            count["unjudged"] += verdict is None
            wrong += [written[:SHOWN]] if verdict is False else []
        stuck, cut, failed = count["stuck"], count["cut"], count["failed"]
        return Writing(count["written"], tuple(wrong), stuck, cut, failed, count["unjudged"], dict(masks))


def judging(schema: Any) -> Callable[[str], bool | None]:
    """What the package jsonschema says of a text: valid, invalid, or None where it cannot tell."""
    jsonschema = brought_by("grammar", "jsonschema", "judging what was written")
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)

    def valid(text: str) -> bool | None:
        try:
            return bool(validator.is_valid(json.loads(text)))
        except ValueError:
            return False
        except Exception:  # a schema that is broken, refers to nowhere or never ends: each has an error of its own
            return None

    return valid


def _timed(masks: Counter[int]) -> Masked:
    def masked(mask: Callable[[], Tensor]) -> Tensor:
        began = perf_counter()
        made = mask()
        masks[round(FINE * log2(1e6 * max(perf_counter() - began, 1e-7)))] += 1
        return made

    return masked


def _blamed(taker: Taker, schema: Any) -> tuple[str, ...]:
    try:
        return taker.refused(schema)
    except BadRequest:
        return ()


def _frozen(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in record.items()}

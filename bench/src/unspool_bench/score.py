"""What the rows of the JSON benchmark come to: counts, quantiles, and the keywords behind refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .schemas import BROKEN, FINE, LATE, REFUSED, TAKEN, SchemaRow


@dataclass(frozen=True)
class TakerScore:
    """One taker over many schemas.

    `right` are schemas that were taken with no wrong verdict and no error, `wrong` those taken with one. `rejected` are
    valid instances that were not taken, `admitted` invalid ones that were, `outputs_wrong` texts written under the
    masks that jsonschema calls invalid. Times are in milliseconds and microseconds.
    """

    taker: str
    schemas: int
    taken: int
    right: int
    wrong: int
    refused: int
    late: int
    broken: int
    valid: int
    invalid: int
    respelt: int
    rejected: int
    admitted: int
    gave_up: int
    outputs: int
    outputs_wrong: int
    outputs_unjudged: int
    stuck: int
    cut: int
    compile_ms: Mapping[str, float]
    mask_us: Mapping[str, float]
    refusals: Mapping[str, int]
    checks: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """The score as plain data."""
        return asdict(self)


def score(taker: str, rows: Iterable[SchemaRow]) -> TakerScore:
    """The score of one taker's rows."""
    rows = [row for row in rows if row.taker == taker]
    taken = [row for row in rows if row.outcome == TAKEN]
    outcomes = Counter(row.outcome for row in rows)
    read, wrote = [row.reading for row in taken], [row.writing for row in taken]
    right = sum(row.right for row in taken)
    masks: Counter[int] = Counter()
    for each in wrote:
        masks.update(each.masks)
    return TakerScore(
        taker=taker,
        schemas=len(rows),
        taken=len(taken),
        right=right,
        wrong=len(taken) - right,
        refused=outcomes[REFUSED],
        late=outcomes[LATE],
        broken=outcomes[BROKEN],
        valid=sum(each.valid for each in read),
        invalid=sum(each.invalid for each in read),
        respelt=sum(each.respelt for each in read),
        rejected=sum(len(each.rejected) for each in read),
        admitted=sum(len(each.admitted) for each in read),
        gave_up=sum(len(each.failed) for each in read) + sum(each.failed for each in wrote),
        outputs=sum(each.written for each in wrote),
        outputs_wrong=sum(len(each.wrong) for each in wrote),
        outputs_unjudged=sum(each.unjudged for each in wrote),
        stuck=sum(each.stuck for each in wrote),
        cut=sum(each.cut for each in wrote),
        compile_ms=_quantiles(sorted(row.compile_ms for row in taken), (0.5, 0.95, 1.0)),
        mask_us=_quantiles([2 ** (bin / FINE) for bin in sorted(masks.elements())], (0.5, 0.99, 1.0)),
        refusals=_refusals(row for row in rows if row.outcome == REFUSED),
        checks=_ordered(Counter(keyword for row in taken for keyword in row.checked)),
    )


def by_split(rows: Sequence[SchemaRow], takers: Sequence[str]) -> dict[str, dict[str, tuple[int, int, int]]]:
    """For every split and taker: schemas taken rightly, taken wrongly, and not taken."""
    table: dict[str, dict[str, tuple[int, int, int]]] = {}
    for split in sorted({row.split for row in rows}):
        own = [row for row in rows if row.split == split]
        table[split] = {}
        for taker in takers:
            mine = [row for row in own if row.taker == taker]
            right, taken = sum(row.right for row in mine), sum(row.outcome == TAKEN for row in mine)
            table[split][taker] = right, taken - right, len(mine) - taken
    return table


def only_theirs(rows: Sequence[SchemaRow], ours: str, theirs: str) -> list[tuple[SchemaRow, SchemaRow]]:
    """Schemas that another takes rightly and we do not take: our row and theirs."""
    right = {row.name: row for row in rows if row.taker == theirs and row.right}
    return [(row, right[row.name]) for row in rows if row.taker == ours and not row.right and row.name in right]


def _refusals(rows: Iterable[SchemaRow]) -> dict[str, int]:
    """How many schemas were refused for each keyword; one can have several. Without one, the reason in short."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row.refused or [row.why.split(": ", 1)[-1].split(": ")[0][:60]])
    return _ordered(counts)


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(counts.most_common())


def _quantiles(values: Sequence[float], at: Sequence[float]) -> dict[str, float]:
    """Of sorted values, by name: p50, p95, max."""
    names = ["max" if q == 1 else f"p{100 * q:g}" for q in at]
    return {name: values[int(q * (len(values) - 1))] for name, q in zip(names, at, strict=True)} if values else {}

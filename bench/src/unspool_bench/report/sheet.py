"""A sheet: one table of the page, which can be sorted by its columns and taken away as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .markup import Html, joined, tag

NONE = "–"
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet compute a cell instead of showing it

Value = str | float | int | None


@dataclass(frozen=True)
class SheetCell:
    """What is shown, what it is sorted by, a line below it, and what a reader who points at it is told."""

    shown: str
    value: Value
    below: str = ""
    tip: str = ""
    look: str = ""


@dataclass(frozen=True)
class SheetColumn:
    """A head, and what it means for those who ask."""

    head: str
    tip: str = ""
    look: str = ""  # "name" for what the row is about, "number", "bar" for pictures, which have no order


@dataclass(frozen=True)
class Sheet:
    """A table. The CSV has figures in full, under names that programs can use."""

    name: str  # of its CSV file
    caption: str
    columns: Sequence[SheetColumn]
    rows: Sequence[Sequence[SheetCell]]
    csv_heads: Sequence[str] = ()
    csv_rows: Sequence[Sequence[Value]] = field(default=())

    def html(self) -> Html:
        """The table in a box of its own, which scrolls where the page is narrow."""
        heads = tag("tr", {}, *(_head(column) for column in self.columns))
        lines = [
            tag("tr", {}, *(_cell(cell, column) for cell, column in zip(row, self.columns, strict=True)))
            for row in self.rows
        ]
        table = tag("table", {}, tag("caption", {}, self.caption), tag("thead", {}, heads), tag("tbody", {}, *lines))
        box = tag("div", {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": self.caption}, table)
        button = tag("button", {"type": "button", "class": "csv", "data-csv": self.name}, f"CSV: {self.name}")
        return tag("div", {"class": "sheet"}, box, button)

    def csv(self) -> str:
        """The same as comma-separated values."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(map(_plain, self.csv_heads or [column.head for column in self.columns]))
        for row in self.csv_rows or [[cell.value for cell in row] for row in self.rows]:
            lines.writerow(map(_plain, row))
        return text.getvalue()


def number(value: float | None, form: str = ".2f", tip: str = "", look: str = "") -> SheetCell:
    """A figure, or a dash where there is none."""
    if value is None or math.isnan(value):
        return SheetCell(NONE, None, tip=tip, look=look)
    return SheetCell("∞" if math.isinf(value) else f"{value:{form}}", value, tip=tip, look=look)


def word(text: str, look: str = "") -> SheetCell:
    """A name or a remark."""
    return SheetCell(text, text, look=look)


def _head(column: SheetColumn) -> Html:
    look = {"scope": "col", "class": column.look or None, "title": column.tip or None}
    if column.look == "bar":
        return tag("th", look, column.head)
    return tag("th", look | {"aria-sort": "none"}, tag("button", {"type": "button", "class": "sort"}, column.head))


def _cell(cell: SheetCell, column: SheetColumn) -> Html:
    look = " ".join(filter(None, (column.look, cell.look)))
    about = {"class": look or None, "title": cell.tip or None, "data-value": _sorted_by(cell.value)}
    inside = [cell.shown, tag("small", {}, cell.below)] if cell.below else [cell.shown]
    if column.look == "name":
        return tag("th", {"scope": "row", **about}, joined(inside))
    return tag("td", about, joined(inside))


def _sorted_by(value: Value) -> str | None:
    if value is None:
        return None
    return value if isinstance(value, str) else repr(float(value))


def _plain(value: Value) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    return repr(value)

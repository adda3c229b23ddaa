"""Aligned tables in plain text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: str = "") -> str:
    """Rows under their heads, each column as wide as its widest cell; those named in `right` stand flush right.

    `right` lists heads separated by commas. The last column is not padded, so lines have no trailing blanks.
    """
    flush = {head.strip() for head in right.split(",")}
    lines = [list(heads), *map(list, rows)]
    wide = [max(_width(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(_line(line, wide, [head in flush for head in heads]) for line in lines)


def _line(cells: Sequence[str], wide: Sequence[int], right: Sequence[bool]) -> str:
    padded = []
    for cell, width, flush in zip(cells, wide, right, strict=True):
        blanks = " " * (width - _width(cell))
        padded.append(blanks + cell if flush else cell + blanks)
    return "  ".join(padded).rstrip()


def _width(text: str) -> int:
    """How many terminal columns a text takes: wide East Asian characters take two, combining ones none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def size(count: float) -> str:
    """Bytes as people say them: 92.9 MB, 1.1 GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"

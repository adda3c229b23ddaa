"""Where a file keeps a tensor: under another name, or as some rows of a larger one."""

from __future__ import annotations

from typing import NamedTuple


class Stored(NamedTuple):
    """The name that a file has for a tensor, and, where several lie there on top of each other, its rows of `total`."""

    name: str
    rows: slice | None = None
    total: int = 0

    def whole(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of what the file has under that name, for a tensor of this shape."""
        return size if self.rows is None else (self.total, *size[1:])

"""Markup that is safe by construction: whatever is not markup already is escaped on its way into an element."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TypeAlias

Attributes: TypeAlias = Mapping[str, "str | float | None"]


class Html(str):
    """A text that is markup already."""

    __slots__ = ()


def tag(name: str, attributes: Attributes, *inside: str) -> Html:
    """An element; attributes that are None are left out, numbers are written short, and texts are escaped."""
    told = "".join(f' {key}="{safe(_written(value))}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{told}>{joined(inside)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Parts one after another."""
    return Html("".join(map(safe, parts)))


def safe(text: str) -> Html:
    """A text as markup: escaped, with what cannot be printed (control characters, direction marks) spelt out."""
    if isinstance(text, Html):
        return text
    return Html(escape("".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)))


def _written(value: str | float | None) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".") if value is not None else ""

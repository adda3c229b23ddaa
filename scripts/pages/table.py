"""A table of figures, and the words that all tables share: the machine, the families, the methods by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DIRTY = "-dirty"  # what git puts behind the name of a commit whose tree was changed
EVEN = 0.995  # what is shown as 1.00× is not called slower, nor 100 % wrong


@dataclass(frozen=True)
class Table:
    """Figures of one method from one run.

    `slower` says in words where it was behind plain decoding, `wrong` where its answers were not all right although the
    model's laws were exact.
    """

    title: str
    file: str
    where: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    timed: bool = False
    slower: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()


def grouped(specs: Sequence[str]) -> dict[str, list[str]]:
    """Specs by the method's name."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for spec in specs:
        groups[spec.partition(":")[0]].append(spec)
    return groups


def cells(per: Any) -> list[dict[str, Any]]:
    """The figures of a method by family, where it has that form; else one that has nothing."""
    cells = list(per.values()) if isinstance(per, dict) else []
    return cells if cells and all(isinstance(cell, dict) for cell in cells) else [{}]


def machine(data: dict[str, Any]) -> str:
    """What a result was measured on, with versions and commit."""
    made = data["machine"]
    threads = f"{made['threads']} thread{'s' * (made['threads'] > 1)}"
    chip = f"{made['gpu']}, {made['cpu']}" if made.get("gpu") else made["cpu"]
    return f"{chip} ({made['cores']} cores, {threads}), torch {made['torch']}, {commit(made.get('commit'))}"


def commit(said: str | None) -> str:
    """What was measured, in words; git's `-dirty` is a tree that had changes which no commit has."""
    if not said:
        return "commit not recorded"
    name = said.removesuffix(DIRTY)
    return f"commit {name}" + (" with changes that were not committed" if name != said else "")


def short(data: dict[str, Any]) -> str:
    """The chip alone."""
    made = data["machine"]
    return str(made.get("gpu") or f"{made['cores']} cores of an {made['cpu']}")


def word(family: str) -> str:
    """A family of Spec-Bench for people."""
    return {"math_reasoning": "maths", "qa": "QA", "rag": "RAG", "summarization": "summaries"}.get(family, family)

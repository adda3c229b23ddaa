"""A rule's docstring in its parts: what it is, how it works, what it claims, when it loses, what it costs."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
_LOSES = re.compile(r"\b(it loses|can lose)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Said:
    """The parts, each as Markdown; an empty one was not said."""

    definition: str
    workings: str
    claim: str
    loses: str
    cost: str


def said(docstring: str) -> Said:
    """Split a docstring as the house style orders it: one sentence that defines; formula; `Claim:`; `Cost:`."""
    definition, *rest = docstring.split("\n\n")
    promised = next((i for i, part in enumerate(rest) if part.startswith("Claim:")), len(rest))
    workings = [part for i, part in enumerate(rest) if i != promised]
    claim, _, cost = (rest[promised] if promised < len(rest) else "").removeprefix("Claim:").partition("Cost:")
    kept, loses = _parted(_line(claim))
    loses = [s for part in workings for s in _SENTENCE.split(_line(part)) if _LOSES.search(s)] + loses
    return Said(
        definition=marked(_line(definition)),
        workings="\n\n".join(map(_paragraph, workings)),
        claim=marked(_begun(" ".join(kept))),
        loses=marked(" ".join(loses)),
        cost=marked(_begun(_line(cost))),
    )


def marked(text: str) -> str:
    """Prose with code in backticks as Markdown: what has a meaning there besides the backticks is escaped."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([\\*_\[\]<>#|])", r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def cell(text: str) -> str:
    """The same inside a table, where a bar parts cells even in code."""
    return text.replace("\\|", "|").replace("|", "&#124;")


def _parted(claim: str) -> tuple[list[str], list[str]]:
    """The sentences of a claim, and those that say when the rule loses."""
    kept, loses = [], []
    for sentence in filter(None, _SENTENCE.split(claim)):
        before, semicolon, after = sentence.partition("; it loses")
        if semicolon:
            kept.append(before + ".")
            loses.append("It loses" + after)
        else:
            (loses if _LOSES.search(sentence) else kept).append(sentence)
    return kept, loses


def _begun(sentence: str) -> str:
    """With a capital letter, unless it begins with a name of the code."""
    return sentence[:1].upper() + sentence[1:]


def _line(text: str) -> str:
    return " ".join(text.split())


def _paragraph(text: str) -> str:
    """Prose on one line; what is indented stays as it stands."""
    pieces: list[str] = []
    for line in text.split("\n"):
        if line.startswith(" "):
            if not pieces or not pieces[-1].startswith("    "):
                pieces.append("")
            pieces.append("    " + line)
        elif pieces and pieces[-1] and not pieces[-1].startswith("    "):
            pieces[-1] += " " + marked(line)
        else:
            pieces += ["", marked(line)] if pieces else [marked(line)]
    return "\n".join(pieces)

"""A judge: what a model is asked about the end of its own text, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...core.errors import BadRequest
from ...core.law import Law

QUESTION = (
    "How good is the last step of your answer so far? Give one digit from 0 to 9: "
    "9 if it is right and brings the answer closer, 0 if it is wrong or useless."
)
_HERE = "the-answer-so-far"  # stands for the text in the rendered chat


class Chatting(Protocol):
    """What a judge, or a reward of what is written, needs to know of a vocabulary."""

    def chat(self, messages: Sequence[Mapping[str, str]], reply: bool = True) -> str:
        """Messages as the text the model was tuned on."""

    def encode(self, text: str, special: bool = True) -> tuple[int, ...]:
        """The tokens of a text."""

    def decode(self, tokens: tuple[int, ...]) -> str:
        """The text of some tokens."""

    def token(self, text: str) -> int | None:
        """The one token that is this text."""


@dataclass(frozen=True)
class Judge:
    """The tokens `ask` are put after a text; the next token is read as a mark, `marks[i]` being worth i."""

    ask: tuple[int, ...]
    marks: tuple[int, ...]

    @staticmethod
    def of(vocabulary: Chatting, question: str = QUESTION) -> Judge:
        """A judge for a chat model: its turn is closed, the question is the user's, and a digit is the answer."""
        turns = [{"role": "user", "content": "."}, {"role": "assistant", "content": _HERE}]
        shown = vocabulary.chat([*turns, {"role": "user", "content": question}])
        _, _, after = shown.rpartition(_HERE)
        lead = len(vocabulary.encode("", special=False))  # a beginning-of-text token has no place in the middle
        marks = [x for digit in "0123456789" if (x := vocabulary.token(digit)) is not None]
        if len(marks) < 10:
            raise BadRequest(
                "this model has no token for each digit, so the ready-made judge cannot read its marks; "
                "give steps a Judge(ask, marks) of your own."
            )
        return Judge(vocabulary.encode(after)[lead:], tuple(marks))

    def mark(self, law: Law) -> float:
        """Σ i·P(i) / Σ P(i) over the marks; 0 if the answer would be no mark at all."""
        p = [law[x] for x in self.marks]
        return sum(i * mass for i, mass in enumerate(p)) / sum(p) if sum(p) > 0 else 0.0

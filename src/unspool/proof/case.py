"""Cases: small worlds in which a decoder's whole output law can be enumerated, drawn by Hypothesis."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from ..run.table import Table
from ..stop import Stop
from ..warp import Frequency, NoRepeatNgram, Repetition, Same, Temperature, TopK, TopP, Warp

PLAIN = "none"
WARPS: dict[str, Warp] = {
    PLAIN: Same(),
    "temperature 0.6": Temperature(0.6),
    "top-k 2": TopK(2),
    "temperature 1.5, top-p 0.7": Temperature(1.5) | TopP(0.7),
    "repetition 1.6": Repetition(1.6),
    "frequency 1": Frequency(1.0),
    "no bigram twice": NoRepeatNgram(2),
    "greedy": Temperature(0.0),
}


@dataclass(frozen=True)
class Case:
    """Two table models, a prompt, a warp and a stop.

    A table is a few rows of small integer weights; the text so far picks the row. Small integers make zeros, ties and
    p = q common, which is where rules go wrong.
    """

    vocab: int
    target: tuple[tuple[int, ...], ...]
    draft: tuple[tuple[int, ...], ...]
    prompt: tuple[int, ...]
    warp: str
    end: int | None  # a token that stops
    until: str | None  # a string that stops; token 0 is spelt "a", 1 "b", 2 "c"
    most: int

    def tables(self) -> dict[str, Table]:
        """The two models."""
        return {"target": _table(self.vocab, self.target, 7), "draft": _table(self.vocab, self.draft, 5)}

    def stop(self) -> Stop:
        """Stop after `most` tokens, at the end token, or when the string appears."""
        tokens = frozenset() if self.end is None else frozenset({self.end})
        strings = () if self.until is None else (self.until,)
        return Stop(tokens, strings, self.most, piece=lambda token: b"abc"[token : token + 1])

    def __str__(self) -> str:
        lines = [f"vocabulary 0..{self.vocab - 1}, prompt {list(self.prompt)}, warp: {self.warp}"]
        stops = [f"after {self.most} tokens"]
        stops += [] if self.end is None else [f"at token {self.end}"]
        stops += [] if self.until is None else [f"at {self.until!r} (tokens are spelt a, b, c)"]
        lines.append("stop " + " or ".join(stops))
        lines.append("target weights: " + "  ".join(map(str, map(list, self.target))) + "  (row by a hash of the text)")
        lines.append("draft weights:  " + "  ".join(map(str, map(list, self.draft))))
        return "\n".join(lines)


def _table(vocab: int, rows: tuple[tuple[int, ...], ...], mixer: int) -> Table:
    def weights(text: tuple[int, ...]) -> tuple[int, ...]:
        number = 0
        for token in text:
            number = number * mixer + token + 1
        return rows[number % len(rows)]

    return Table(vocab, weights)


@st.composite
def cases(draw: st.DrawFn, warps: tuple[str, ...] = tuple(WARPS)) -> Case:
    """Any small case."""
    vocab = draw(st.integers(2, 3))
    row = st.tuples(*[st.integers(0, 3)] * vocab).filter(any)
    rows = st.lists(row, min_size=1, max_size=4).map(tuple)
    target = draw(rows)
    return Case(
        vocab=vocab,
        target=target,
        draft=draw(st.just(target) | rows),
        prompt=tuple(draw(st.lists(st.integers(0, vocab - 1), min_size=1, max_size=3))),
        warp=draw(st.sampled_from(warps)),
        end=draw(st.none() | st.integers(0, vocab - 1)),
        until=draw(st.none() | st.text("abc"[:vocab], min_size=1, max_size=2)),
        most=draw(st.integers(1, 3)),
    )

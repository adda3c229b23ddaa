"""Texts that grow from the inside: something or nothing goes into every gap, all gaps at once."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...core.asks import Decoding, Done, Emit, Look, OutOfTime
from ...core.canvas import HOLE, Canvas, Field, Status
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest
from ...core.law import NEVER, Law
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise_state import DenoiseState
from ...loops.guard import unguarded
from ..constrain.form import FormVocabulary
from ..unmask.unmask_trials import Brief


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda rule: [Brief(lambda size: rule(0, rounds=2))],
    paper="2005.00558",
    systems=("POINTER",),
)
@dataclass(frozen=True)
class Insert:
    """Draw for every gap of the text what goes there, or `none`; insert all at once, and again until nothing is.

    The text is the prompt's continuation and begins as `words`, which stay, in this order; between word n and the next
    nothing is inserted if n is in `joined`. At round r the probability of `none` is multiplied by min(r/decay, 1), so
    that the first round inserts everywhere; the paper's code multiplies the logit, which raises it where that is
    negative. The model has to be one that was trained to answer a hole in a gap with what belongs there, or `none`.

    Claim: HEURISTIC: neighbouring gaps are drawn as if they were independent, and so the same word may come in twice.
    The words are a subsequence of the text, which at most doubles per round. It loses where the order of the words is
    not that of a good text. Cost: one look per round; about log₂ of the text's length, if all goes well.
    """

    none: int
    words: tuple[int, ...] = ()
    rounds: int = 10
    decay: int = 1
    joined: Collection[int] = ()

    def __post_init__(self) -> None:
        expect(whole(self.none, 0), "insert:none", self.none, "the token that says that nothing is inserted")
        expect(whole(self.rounds, 1), "insert:rounds", self.rounds, "a whole number of rounds from 1 on")
        expect(whole(self.decay, 0), "insert:decay", self.decay, "a whole number of rounds from 0 on")
        if self.none in self.words:
            raise BadRequest(f"the words hold token {self.none}, which says that nothing is inserted; leave it out")

    def fit(self, vocabulary: FormVocabulary) -> Insert:
        """Itself, if all its tokens are in this vocabulary: a model cannot be asked about others."""
        for token in (self.none, *self.words):
            expect(token < vocabulary.size, "a token of insert", token, f"one of this model's {vocabulary.size}")
        return self

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail, warp = stop.start(), unguarded(warp, "insert")
        row = [Placed(x, Law.point(x), Law.point(x), n in self.joined) for n, x in enumerate(self.words)]
        for turn in range(self.rounds):
            canvas = _gaps(text, row, turn)
            try:
                field: Field = yield Look(canvas)
            except OutOfTime:
                break  # what was inserted so far is a text
            held = min(1.0, turn / self.decay) if self.decay else 1.0
            sight = DenoiseState(canvas, Field({i: _held(field[i], self.none, held) for i in field}), warp, chance)
            row, grown = self._grown(sight, row, stop.left(tail) - len(row))
            yield Emit((), (), (), canvas=_shown(text, row, turn))
            if not grown:
                break
        tokens = tuple(placed.token for placed in row)
        kept, reason, _, trim = stop.cut(tail, tokens)
        before, after = [placed.before for placed in row], [placed.after for placed in row]
        shown = _shown(text, row, self.rounds)
        yield Emit(kept, before[: len(kept)], after[: len(kept)], rounds=0, canvas=shown.fixed(0, len(shown)))
        return Done(kept, reason or "length", trim)

    def _grown(self, sight: DenoiseState, row: Sequence[Placed], room: float) -> tuple[list[Placed], int]:
        """The row with what was drawn for its gaps, as far as there is room, and how many that were."""
        grown, count, rest = list[Placed](), 0, iter(row)
        for i in range(sight.canvas.prompt, len(sight.canvas)):
            if sight.canvas.status[i] != Status.HOLE:
                grown.append(next(rest))
                continue
            law = sight.law(i)
            token = law.draw(sight.chance, At(i, Role.FILL, round=sight.canvas.step)).token
            if token != self.none and count < room:
                grown.append(Placed(token, sight.raw[i], law, False))
                count += 1
        return grown, count


class Placed(NamedTuple):
    """A token of the text with its laws before and after warps, and whether nothing may come after it."""

    token: int
    before: Law
    after: Law
    joined: bool


def _gaps(text: tuple[int, ...], row: Sequence[Placed], step: int) -> Canvas:
    """The text with a hole in front, and one after every token that lets something follow."""
    tokens = [HOLE]
    for placed in row:
        tokens += [placed.token] if placed.joined else [placed.token, HOLE]
    return _canvas(text, tokens, step)


def _shown(text: tuple[int, ...], row: Sequence[Placed], step: int) -> Canvas:
    return _canvas(text, [placed.token for placed in row], step)


def _canvas(text: tuple[int, ...], tokens: Sequence[int], step: int) -> Canvas:
    status = [Status.HOLE if x == HOLE else Status.DRAFT for x in tokens]
    size = len(text) + len(tokens)
    return Canvas(
        tokens=(*text, *tokens),
        status=((Status.GIVEN,) * len(text) + tuple(status)),
        filled=(-1,) * size,
        window=(len(text), size),
        step=step,
    )


def _held(law: Law, token: int, share: float) -> Law:
    """This law with the weight of one token cut to a share."""
    if share == 1:
        return law
    scores = law.scores.clone()
    scores[token] += math.log(share) if share else NEVER
    return Law(scores)

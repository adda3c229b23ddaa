"""Texts that grow from the inside: something or nothing goes into every gap, all gaps at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...core.asks import Decoding, Done, Emit, Look, OutOfTime
from ...core.canvas import HOLE, Canvas, Field, Status
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest, cut
from ...core.law import Law
from ...core.option import expect, real, whole
from ...core.reported_law import worth_keeping
from ...core.stop import Stop
from ...core.warp.warp import Warp
from ...loops.denoise_state import DenoiseState
from ...loops.guard import unguarded
from ..constrain.form import spelt
from ..unmask.unmask_trials import Brief
from .gap_beam import GapBeam, Inserted, weighed

NOTHING_HERE = "<none>"  # the name of the token that says so, where a model has one


@claims(
    HEURISTIC,
    shaped=False,
    trials=lambda rule: [Brief(lambda size: rule(0, rounds=2)), Brief(lambda size: rule(0, rounds=2, beam=2))],
    paper="2005.00558",
    systems=("POINTER",),
)
@dataclass(frozen=True)
class Insert:
    """Draw for every gap of the text what goes there, or `none`; insert all at once, and again until nothing is.

    The text is the prompt's continuation and begins as `words`, which stay, in this order; between word n and the next
    nothing is inserted if n is in `joined`. At round r the probability of `none` is multiplied by min(r/decay, 1), so
    that the first round inserts everywhere; the paper's code multiplies the logit, which raises it where that is
    negative. So is that of each token in `reduce`; one in `prevent` is never inserted, one in `promote` counts `boost`
    times. With a `beam` the gaps of a round are filled one after the other, each given what went into those before it.
    The model has to be one that was trained to answer a hole in a gap with what belongs there, or `none`
    (`unspool train filler --kind gaps` makes one). By name, words are texts, and `none` is the token `<none>`.

    Claim: HEURISTIC: neighbouring gaps are drawn as if they were independent, and so the same word may come in twice.
    The words are a subsequence of the text, which at most doubles per round. It loses where the order of the words is
    not that of a good text. Cost: one look per round; about log₂ of the text's length, if all goes well. With a beam
    one look per gap, at as many copies.
    """

    none: int = -1
    words: tuple[int, ...] | tuple[str, ...] = ()
    rounds: int = 10
    decay: int = 1
    joined: Collection[int] = ()
    prevent: tuple[int, ...] | tuple[str, ...] = ()
    reduce: tuple[int, ...] | tuple[str, ...] = ()
    promote: tuple[int, ...] | tuple[str, ...] = ()
    boost: float = 4.0
    beam: int = 1

    def __post_init__(self) -> None:
        expect(whole(self.none, -1), "insert:none", self.none, "the token that says that nothing is inserted")
        expect(whole(self.rounds, 1), "insert:rounds", self.rounds, "a whole number of rounds from 1 on")
        expect(whole(self.decay, 0), "insert:decay", self.decay, "a whole number of rounds from 0 on")
        expect(whole(self.beam, 1), "insert:beam", self.beam, "a whole number of beams from 1 on")
        expect(real(self.boost, 0), "insert:boost", self.boost, "a factor from 0 on")
        if self.none in self.words:
            raise BadRequest(f"the words hold token {self.none}, which says that nothing is inserted; leave it out")

    def fit(self, vocabulary: Any) -> Insert:
        """Itself over the tokens of a vocabulary: a model cannot be asked about others."""
        none = self.none
        if none < 0 and (none := vocabulary.token(NOTHING_HERE)) is None:
            raise BadRequest(
                f"this model has no token {NOTHING_HERE}, so that it cannot say that nothing goes into a gap; train "
                "one that has, by `unspool train filler --kind gaps`, or name its token: insert:none=TOKEN"
            )
        words, joined = self._worded(vocabulary)
        lists = [_tokens(name, vars(self)[name], vocabulary) for name in ("prevent", "reduce", "promote")]
        for token in (none, *words, *(token for tokens in lists for token in tokens)):
            expect(token < vocabulary.size, "a token of insert", token, f"one of this model's {vocabulary.size}")
        prevent, reduce, promote = lists
        return replace(self, none=none, words=words, joined=joined, prevent=prevent, reduce=reduce, promote=promote)

    def _worded(self, vocabulary: Any) -> tuple[tuple[int, ...], Collection[int]]:
        """The tokens of the words, and those of them that nothing may follow, because a word goes on."""
        if not any(isinstance(word, str) for word in self.words):
            return tuple(word for word in self.words if isinstance(word, int)), self.joined
        tokens, joined = list[int](), set[int]()
        for word in map(str, self.words):
            pieces = spelt(f" {word}" if tokens else word, vocabulary)
            joined |= set(range(len(tokens), len(tokens) + len(pieces) - 1))
            tokens += pieces
        return tuple(tokens), frozenset(joined)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail, warp = stop.start(), unguarded(warp, "insert")
        row = [Placed(x, Law.point(x), Law.point(x), n in self.joined) for n, x in enumerate(self._known())]
        for turn in range(self.rounds):
            canvas, factors = _gaps(text, row, turn), self._factors(turn)
            room = stop.left(tail) - len(row)
            try:
                if self.beam > 1:
                    put = yield from GapBeam(self.beam, self.none, factors)(canvas, warp, chance, room)
                else:
                    field: Field = yield Look(canvas)
                    told = Field({i: weighed(field[i], factors) for i in field})
                    put = self._drawn(DenoiseState(canvas, told, warp, chance), room)
            except OutOfTime:
                break  # what was inserted so far is a text
            row = _grown(canvas, row, put, stop.told)
            yield Emit((), (), (), canvas=_shown(text, row, turn))
            if not put:
                break
        tokens = tuple(placed.token for placed in row)
        kept, reason, _, trim = stop.cut(tail, tokens)
        before, after = [placed.before for placed in row], [placed.after for placed in row]
        shown = _shown(text, row, self.rounds)
        yield Emit(kept, before[: len(kept)], after[: len(kept)], rounds=0, canvas=shown.fixed(0, len(shown)))
        return Done(kept, reason or "length", trim)

    def _known(self) -> list[int]:
        listed = (*self.words, *self.prevent, *self.reduce, *self.promote)
        if self.none < 0 or any(isinstance(word, str) for word in listed):
            raise BadRequest("insert has to know the tokens: run it by name, or give Insert(…).fit(vocabulary)")
        return [word for word in self.words if isinstance(word, int)]

    def _factors(self, turn: int) -> Mapping[int, float]:
        """What the probability of each token is multiplied by in a round, where that is not 1."""
        held = min(1.0, turn / self.decay) if self.decay else 1.0
        factors = {**dict.fromkeys(self.promote, self.boost), **dict.fromkeys(self.reduce, held), self.none: held}
        factors |= dict.fromkeys(self.prevent, 0.0)
        return {token: factor for token, factor in factors.items() if isinstance(token, int) and factor != 1}

    def _drawn(self, state: DenoiseState, room: float) -> dict[int, Inserted]:
        """What goes into the gaps, each drawn from its own law, as far as there is room."""
        found: dict[int, Inserted] = {}
        for i in state.holes:
            law = state.law(i)
            token = law.draw(state.chance, At(i, Role.FILL, round=state.canvas.step)).token
            if token != self.none and len(found) < room:
                found[i] = Inserted(token, state.raw[i], law)
        return found


class Placed(NamedTuple):
    """A token of the text with its laws before and after warps, and whether nothing may come after it."""

    token: int
    before: Law
    after: Law
    joined: bool


def _grown(canvas: Canvas, row: Sequence[Placed], put: Mapping[int, Inserted], told: float) -> list[Placed]:
    """The row with what was put into its gaps."""
    grown, rest = list[Placed](), iter(row)
    for i in range(canvas.prompt, len(canvas)):
        if canvas.status[i] != Status.HOLE:
            grown.append(next(rest))
        elif i in put:
            token, before, after = put[i]
            grown.append(Placed(token, *worth_keeping(before, after, token, told), joined=False))
    return grown


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


def _tokens(name: str, words: Sequence[int | str], vocabulary: Any) -> tuple[int, ...]:
    """The tokens that are these words, with a blank before them or without; BadRequest for one that no token is."""
    found: dict[int, None] = {}
    for word in words:
        ways = [(word,)] if isinstance(word, int) else [spelt(f"{blank}{word}", vocabulary) for blank in ("", " ")]
        alone = [way[0] for way in ways if len(way) == 1]
        if not alone:
            raise BadRequest(f"insert:{name} has {cut(str(word))!r}, which this model spells with several tokens")
        found |= dict.fromkeys(alone)
    return tuple(found)

"""Lookahead, then verify: a constraint that reads left to right, kept on a canvas that is filled in any order."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ...core.asks import Ask, GiveWay
from ...core.canvas import HOLE, Canvas, Status
from ...core.chance import At, Role
from ...core.errors import BadRequest
from ...core.law import Law, Point
from ...core.stop import Stop
from ...loops.denoise_state import DenoiseState
from ...loops.guard import Placing
from ..constrain.closing import Closing
from ..constrain.constraint import CanvasConstraint, Constraint, State
from .outlook import Outlook

T = TypeVar("T")
Searching: TypeAlias = Generator[Ask, Any, T]
"""What a search finds in the end; it gives way between its steps, each of which takes some masks of the vocabulary."""


class HoleBeam(NamedTuple):
    """One way to fill the holes so far: its log-probability, its tokens from the first hole on, where it leads."""

    score: float
    tokens: tuple[int, ...]
    state: State


@dataclass
class Lave:
    """Accept a token for a hole only if a whole text that meets the constraint is known with it.

    Such a text, the witness, is known at every moment, the first before the model is asked anything: so what stands can
    always be completed within the holes that are left. A proposal that agrees with the witness is accepted at once.
    For any other the holes up to the last filled place are filled by a beam search over their laws, under the
    constraint's masks; then the text goes on greedily as far as laws are known, and is closed in as few tokens as a
    search finds. After `patience` proposals without success the hole is left open, and after as many such holes all
    others are. If none of the chosen holes could be filled, the first open one is filled left to right: from its masked
    law, in the end with the witness's own token.

    Every text that comes out meets the constraint. Good tokens may be rejected, as only `beams` ways are followed. A
    constraint that can be asked about texts with holes itself (2508.10111) is asked first: what it fills in is the
    witness, what it calls impossible is rejected, and only in between is there a search.

    LAVE; its arXiv id is not known to us. There, a block is pasted over with the last witness after `patience`
    rejections; here single tokens of it are, so that the model has more of a say. Scores are sums of log-probabilities.
    """

    first: State
    stop: Stop
    closing: Closing
    begins: int  # where the text begins on the canvas
    room: int  # how long it may be
    witness: tuple[int, ...]  # a whole text, with its end token if there is room for one
    beams: int = 10
    width: int = 5
    patience: int = 5
    exact: CanvasConstraint | None = (
        None  # the constraint itself, if it can tell of any text with holes whether one fits
    )
    _known: list[tuple[int, State]] = field(default_factory=list)  # tokens without a gap, and the states after them

    @staticmethod
    def of(constraint: Constraint, canvas: Canvas, stop: Stop) -> Searching[Lave]:
        """The guard of one request; BadRequest if no text is found that meets the constraint and fits."""
        first, begins = constraint.start(), canvas.prompt
        given = any(token != HOLE for token in canvas.tokens[begins:])  # between and behind the holes, part of the text
        room = int(len(canvas) - begins if given else min(len(canvas) - begins, stop.left(stop.start())))
        closing = Closing(first.mask().shape[0], stop.tokens, stop.piece)
        exact = constraint if isinstance(constraint, CanvasConstraint) else None
        lave = Lave(first, stop, closing, begins, room, (), exact=exact)
        found = lave._filled(lave._text(canvas))
        if found is None and given:
            raise BadRequest(
                f"no way was found to fill {len(canvas.holes)} holes so that they meet the constraint together with "
                "what is given; give them other sizes, or other texts between and behind them",
                param="suffix",
            )
        found = (yield from lave._closed(first, 0)) if found is None else found
        if found is None:
            raise BadRequest(
                f"no text of up to {room} tokens was found that meets the constraint. Raise max_tokens, or the "
                "method's option size, or ask for less"
            )
        lave.witness = found
        return lave

    def __call__(self, state: DenoiseState, canvas: Canvas, chosen: Collection[int], status: Status) -> Placing:
        """The canvas one step later, with those of the chosen tokens that leave a way to an end, or with one other."""
        if not chosen:
            return canvas.fill({}, status)  # a step all the same: schedules go by the canvas's own time
        text, outlook = self._text(canvas), Outlook(state)
        self._refuse_unless(self._agrees(text))
        placed: dict[int, int] = {}
        missed = 0
        for i in sorted(chosen, key=lambda i: -state.peak(i).p):
            at = i - self.begins
            if at >= self.room:  # behind the longest text: never read
                placed[i] = state.draw(i).token
            elif at < self._end(text) and missed < self.patience:  # the next look may know better
                token = yield from self._proposed(outlook, text, i)
                if token is None:
                    missed += 1
                else:
                    placed[i] = text[at] = token
        if not placed:
            i = state.holes[0]
            placed[i] = text[i - self.begins] = yield from self._forward(outlook, text, i)
        return canvas.fill(placed | self._forced(state, text), status)

    def mend(self, state: DenoiseState, before: Canvas, after: Canvas) -> Placing:
        """The canvas after a second thought, with what stood before where the new token leaves no way to an end.

        Places are asked about from left to right, each with all others as they stand by then. One that was drawn anew
        may be drawn again; a place that was emptied stays so. After `patience` places for which nothing new was found
        all others keep what stood there.
        """
        text, outlook = self._text(before), Outlook(state)
        wanted = self._text(after)
        changed = [at for at, token in enumerate(wanted) if token != text[at]]
        for at in changed:
            if wanted[at] == HOLE:
                text[at] = HOLE
        self._refuse_unless(self._agrees(text))
        revised: dict[int, int] = {}
        missed = 0
        for at in changed:
            i, new = self.begins + at, wanted[at]
            if new == HOLE:
                continue
            old, text[at] = text[at], HOLE
            token: int | None = None
            if missed >= self.patience:
                pass
            elif state.drew(i, new):
                token = yield from self._proposed(outlook, text, i)
            elif (yield from self._fits(outlook, text, at, new)):
                token = new
            missed += token is None
            text[at] = old if token is None else token
            if text[at] != new:
                revised[i] = text[at]
        return replace(after.fill(revised, Status.DRAFT), step=after.step) if revised else after

    # ---- proposals

    def _proposed(self, outlook: Outlook, text: list[int], i: int) -> Searching[int | None]:
        """The token for a hole: the one that was drawn, or another draw if that cannot stand; None after too many."""
        state = outlook.state
        token, tried = state.draw(i).token, list[int]()
        for k in range(1, self._tries() + 1):
            if (yield from self._fits(outlook, text, i - self.begins, token)):
                return token
            tried.append(token)
            law = outlook.law(i) if isinstance(state.law(i), Point) else state.law(i)
            next_one = _drawn(law.without(*tried), state, At(i, Role.FILL, k, state.canvas.step))
            if next_one is None:
                return None
            token = next_one
        return None

    def _forward(self, outlook: Outlook, text: list[int], i: int) -> Searching[int]:
        """A token for the first open hole, which some text has: from its masked law, or the witness's own."""
        at, state = i - self.begins, outlook.state
        if HOLE not in text[:at]:
            mask, tried = self._state(text, at).mask(), list[int]()
            law = outlook.law(i) if isinstance(state.law(i), Point) else state.law(i)
            law = law.only(mask.to(law.scores.device))
            for k in range(self.patience + 1, self.patience + self._tries() + 1):
                token = _drawn(law.without(*tried) if tried else law, state, At(i, Role.FILL, k, state.canvas.step))
                if token is None:
                    break
                if (yield from self._fits(outlook, text, at, token)):
                    return token
                tried.append(token)
        self._refuse_unless(at < len(self.witness))
        return self.witness[at]

    def _tries(self) -> int:
        """How many proposals to try: the less room the witness leaves, the less hope there is for any other."""
        return max(1, min(self.patience, self.room - len(self.witness)))

    def _forced(self, state: DenoiseState, text: list[int]) -> dict[int, int]:
        """What the constraint leaves no choice about after all that stands without a gap: the witness has it too."""
        placed: dict[int, int] = {}
        for at, foreseen in enumerate(self.witness):
            if text[at] in self.stop.tokens:
                break
            if text[at] == HOLE:
                if self.begins + at not in state.raw or not self._state(text, at).forced():
                    break
                placed[self.begins + at] = text[at] = foreseen
        return placed

    # ---- lookahead

    def _fits(self, outlook: Outlook, text: list[int], at: int, token: int) -> Searching[bool]:
        """True if a whole text is known with this token there; it is the witness from now on."""
        if self._as_foreseen(at, token):
            return True
        tried = [*text[:at], token, *text[at + 1 :]]
        found = self._filled(tried)
        if found is None and (self.exact is None or self.exact.possible(tried[: self._end(tried)])):
            found = yield from self._completed(outlook, tried)
        self.witness = self.witness if found is None else found
        return found is not None

    def _completed(self, outlook: Outlook, text: list[int]) -> Searching[tuple[int, ...] | None]:
        """A whole text that has these tokens and meets the constraint, or None if none was found."""
        hole, end = text.index(HOLE) if HOLE in text else len(text), self._end(text)
        hole = min(hole, end)
        last = max((at + 1 for at in range(hole, end) if text[at] != HOLE), default=hole) if end == len(text) else end
        beams = [HoleBeam(0.0, (), self._state(text, hole))]
        for at in range(hole, last):
            yield GiveWay()
            beams = self._grown(outlook, beams, text[at], self.begins + at)
        before = tuple(text[:hole])
        for beam in beams if end < len(text) else beams[:2]:  # to close a text costs more than to see that it may end
            if end < len(text):
                if self._may_end(beam.state, text[end]):
                    return (*before, *beam.tokens, text[end])
            elif (rest := (yield from self._rest(outlook, beam.state, last))) is not None:
                return (*before, *beam.tokens, *rest)
        return None

    def _filled(self, text: list[int]) -> tuple[int, ...] | None:
        """A whole text with these tokens, by a constraint that can be asked about holes; None if it knows of none."""
        if self.exact is None:
            return None
        end = self._end(text)
        if end < len(text):
            found = self.exact.filled(text[:end])
            return None if found is None else (*found, text[end])
        if not self.stop.tokens:
            return self.exact.filled(text)
        found = self.exact.finished(text)
        return None if found is None else (*found, min(self.stop.tokens))[: len(text)]

    def _grown(self, outlook: Outlook, beams: list[HoleBeam], known: int, i: int) -> list[HoleBeam]:
        """All beams one place further, the best of them first."""
        if known == HOLE and i not in outlook.state.raw:  # nobody has looked there: what was foreseen has to do
            at = i - self.begins
            known = self.witness[at] if at < len(self.witness) else HOLE
        if known != HOLE:
            return [HoleBeam(b.score, (*b.tokens, known), b.state.step(known)) for b in beams if b.state.allows(known)]
        if i not in outlook.state.raw:
            return []
        grown = [
            (beam, token, beam.score + logprob)
            for beam in beams
            for token, logprob in outlook.best(i, beam.state, self.width, self.stop.tokens)
        ]
        best = sorted(grown, key=lambda way: -way[2])[: self.beams]
        return [HoleBeam(score, (*beam.tokens, token), beam.state.step(token)) for beam, token, score in best]

    def _rest(self, outlook: Outlook, state: State, at: int) -> Searching[tuple[int, ...] | None]:
        """How a text goes on from here to its end: greedily while laws are known, then by the shortest way."""
        states, tokens = [state], list[int]()
        while at + len(tokens) < self.room and self.begins + at + len(tokens) in outlook.state.raw:
            yield GiveWay()
            found = outlook.best(self.begins + at + len(tokens), states[-1], 1)
            if not found:
                break
            ((token, _),) = found
            if token in self.stop.tokens:
                if self._may_end(states[-1], token):
                    return (*tokens, token)
                break
            tokens.append(token)
            states.append(states[-1].step(token))
        for far in dict.fromkeys((len(tokens), 0)):
            if (ending := (yield from self._closed(states[far], at + far))) is not None:
                return (*tokens[:far], *ending)
        return None

    def _closed(self, state: State, at: int) -> Searching[tuple[int, ...] | None]:
        """The shortest way to an end that was found, with the end token if there is room for one."""
        left = self.room - at
        effort = 2 if self.witness else 8  # the first witness decides whether there is any text at all
        found = yield from self.closing.search(state, left, exactly=not self.stop.tokens, effort=effort)
        if found is None or len(found) == left:
            return found
        for token in found:
            state = state.step(token)
        end = next((token for token in sorted(self.stop.tokens) if self._may_end(state, token)), None)
        return None if end is None else (*found, end)

    # ---- what stands

    def _text(self, canvas: Canvas) -> list[int]:
        return list(canvas.tokens[self.begins : self.begins + self.room])

    def _end(self, text: Sequence[int]) -> int:
        """Where a text ends: at its first end token, or after all."""
        return next((at for at, token in enumerate(text) if token in self.stop.tokens), len(text))

    def _may_end(self, state: State, token: int) -> bool:
        return state.allows(token) and state.step(token).complete()

    def _as_foreseen(self, at: int, token: int) -> bool:
        return at < len(self.witness) and self.witness[at] == token

    def _agrees(self, text: list[int]) -> bool:
        """True if the witness has all that stands, up to its end."""
        return all(text[at] in (HOLE, token) for at, token in enumerate(self.witness))

    def _state(self, text: list[int], at: int) -> State:
        """The state after the first `at` tokens, which have no gap."""
        same = 0
        while same < min(at, len(self._known)) and self._known[same][0] == text[same]:
            same += 1
        del self._known[same:]
        for token in text[same:at]:
            state = self._known[-1][1] if self._known else self.first
            self._known.append((token, state.step(token)))
        return self._known[at - 1][1] if at else self.first

    def _refuse_unless(self, fits: bool) -> None:
        if not fits:
            raise BadRequest(
                "the canvas no longer agrees with any text that is known to meet the constraint: the method filled "
                "places behind its back. Use one that fills from the left, or block by block"
            )


def _drawn(law: Law, state: DenoiseState, at: At) -> int | None:
    """A token of a law: drawn, or the best where the request is greedy; None if there is none."""
    if law.is_empty():
        return None
    greedy = isinstance(state.law(at.position), Point)
    return law.best if greedy else law.draw(state.chance, at).token

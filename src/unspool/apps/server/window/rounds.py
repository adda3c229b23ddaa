"""Rounds: what became of a text each time its decoder handed something out, as plain data for a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from ....core.asks import Ask, Checked, Decoding, Done, Emit
from ....core.canvas import HOLE, Canvas, Frame, Status
from ....core.chance import Chance
from ....core.claim import Branching, Choosing, Infilling, Method, fit, texts_of
from ....core.law import Law, Point
from ....core.stop import Stop
from ....core.tree import Tree
from ....core.warp.warp import Warp
from ....loops.guard import parts
from ....models.vocabulary import Vocabulary
from ....rules.constrain.constraint import Constrained, State
from ....runtime.engine.job import Job

TOP = 8  # tokens of a law that are told
NODES = 128  # of a tree that are told; a parent stands before its kids, so that the first ones are a tree too
PAUSE = 0.25  # seconds after which one is told that a method still works, if it writes nothing


@dataclass(frozen=True)
class TextObserver:
    """Who looks at one text: `begun` is told what it goes on from and where it stops, `asked` every ask before it is
    answered, `heard` every answer, `ended` the end."""

    begun: Callable[[tuple[int, ...], Warp, Stop], None]
    asked: Callable[[Ask], None]
    heard: Callable[[Ask, Any], None]
    ended: Callable[[Done], None]


@dataclass(frozen=True)
class Shown(Branching):
    """A method with one who looks; for one text, as whoever looks keeps its place in it."""

    method: Method
    look: TextObserver

    def among(self, models: Collection[str]) -> Shown:
        made = self.method
        return replace(self, method=made.among(models) if isinstance(made, Choosing) else made)

    def fit(self, vocabulary: Any) -> Shown:
        made = self.method
        return replace(self, method=fit(made, vocabulary))

    @property
    def texts(self) -> int:
        return texts_of(self.method)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        decoding = self.method(text, chance, warp, stop)
        self.look.begun(text, warp, stop)
        try:
            reply: Any = None
            while True:
                ask = decoding.send(reply)
                self.look.asked(ask)
                reply = yield ask
                self.look.heard(ask, reply)
        except StopIteration as end:
            done: Done = end.value
            self.look.ended(done)
            return done
        finally:
            decoding.close()


class ShownInfill(Shown):
    """The same for a method that can write between given texts."""

    def framed(self, frame: Frame) -> Shown:
        assert isinstance(self.method, Infilling)  # as `shown` has seen
        return replace(self, method=self.method.framed(frame))


def shown(method: Method, look: TextObserver) -> Shown:
    """A method with one who looks."""
    return (ShownInfill if isinstance(method, Infilling) else Shown)(method, look)


class Rounds:
    """Makes one record per `Emit` of one text and hands it to `tell`, in the thread that runs the decoder.

    `job` is the text's own job, asked for only when the text is being written. `tail` is what a stop string or a
    broken character held back until the end.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        stops: tuple[str, ...],
        job: Callable[[], Job],
        tell: Callable[[dict[str, Any]], None],
    ) -> None:
        self._words, self._stops, self._job, self._tell = vocabulary, stops, job, tell
        self._stream = vocabulary.stream(stops)
        self._state: State | None = None  # of the constraint, behind the last token told
        self._draft: tuple[Tree, Checked] | None = None  # of this round
        self._canvas: list[tuple[int, int]] = []  # as it was told last
        self._prompt = self._rounds = self._tokens = self._drafted = self._accepted = 0
        self._told = 0.0
        self.tail = ""

    @property
    def look(self) -> TextObserver:
        """What is to be shown of a method for these rounds to be told."""
        return TextObserver(self._begun, self._asked, self._heard, self._ended)

    def _begun(self, text: tuple[int, ...], warp: Warp, stop: Stop) -> None:
        self._prompt, self._told = len(text), perf_counter()
        self._stream = self._words.stream(self._stops, stop.skip)
        bound = [part.constraint for part in parts(warp) if isinstance(part, Constrained)]
        self._state = bound[0].start() if len(bound) == 1 else None

    def _asked(self, ask: Ask) -> None:
        if isinstance(ask, Emit):
            self._tell({"round": self._round(ask)})
            self._draft, self._told = None, perf_counter()

    def _heard(self, ask: Ask, reply: Any) -> None:
        if isinstance(reply, Checked):
            self._draft = reply.scored.tree, reply
        if perf_counter() - self._told > PAUSE:
            self._told = perf_counter()
            self._tell({"working": self._spent()})

    def _ended(self, done: Done) -> None:
        self.tail = self._stream.end(done.trim)

    # ---- one round

    def _round(self, emit: Emit) -> dict[str, Any]:
        first = self._tokens
        self._rounds += emit.rounds
        self._tokens += len(emit.tokens)
        self._drafted += emit.drafted if self._draft is None else self._draft[0].guesses
        self._accepted += emit.accepted
        record: dict[str, Any] = {
            "round": self._rounds,
            "tokens": [self._token(emit, i, first + i) for i in range(len(emit.tokens))],
            "drafted": self._drafted,
            "accepted": self._accepted,
            **self._spent(),
        }
        if self._draft is not None and len(self._draft[0]):
            record["tree"] = self._tree(*self._draft, len(emit.tokens))
        if emit.canvas is not None:
            record["canvas"] = self._changes(emit.canvas)
        return record

    def _spent(self) -> dict[str, Any]:
        """Forwards by model, and where the time went, up to now."""
        job = self._job()
        trace, total = job.trace, perf_counter() - job.began
        split = {"draft": trace.seconds_draft, "forward": trace.seconds_forward, "rule": trace.seconds_rule}
        split["other"] = max(0.0, total - sum(split.values()))
        return {"forwards": dict(trace.forwards), "seconds": {name: round(s, 6) for name, s in split.items()}}

    def _token(self, emit: Emit, i: int, place: int) -> dict[str, Any]:
        token = emit.tokens[i]
        record: dict[str, Any] = {"id": token, "text": self._stream.push(token), "name": self._words.name(token)}
        if emit.canvas is None and self._forced(token):
            record["origin"] = "forced"
        elif emit.canvas is None:
            record["origin"] = "drafted" if i < emit.accepted else "added"
            record |= self._instead(token) if i == emit.accepted else {}
        else:
            record |= {"origin": "unmasked", "place": place}
            record["look"] = emit.canvas.filled[self._prompt + place] + 1
        if i < len(emit.before) and i < len(emit.after):
            record |= self._law(token, emit.before[i], emit.after[i])
        return record

    def _instead(self, token: int) -> dict[str, Any]:
        """What had been drafted in the place of a token that the target added, where that was something else."""
        if self._draft is None:
            return {}
        tree, checked = self._draft
        guesses = [tree.drawn[kid].token for kid in tree.kids(checked.verdict.node)]
        named = [self._words.name(guess) for guess in guesses if guess not in (HOLE, token)]
        return {"instead": named[0]} if named else {}

    def _forced(self, token: int) -> bool:
        """Whether the constraint left no other text than this token's; however that could have been spelt."""
        if self._state is None:
            return False
        ahead, piece = self._state.forced(), self._words.piece(token)
        spelt = b"".join(map(self._words.piece, ahead))
        self._state = self._state.step(token)
        return ahead[:1] == (token,) or (piece != b"" and spelt.startswith(piece))

    def _law(self, token: int, before: Law, after: Law) -> dict[str, Any]:
        """The most probable tokens of the model's own law, each with its probability there and after all warps."""
        listed = before.top(TOP)
        listed += [] if token in listed else [token]
        top = [[self._words.name(x), _short(before[x]), _short(after[x]), x == token] for x in listed]
        return {"p": _short(before[token]), "top": top}

    def _tree(self, tree: Tree, checked: Checked, kept: int) -> dict[str, Any]:
        """The draft: its nodes with the drafter's probability, where it has one, and the model's own."""
        path = set(tree.path(checked.verdict.node)[:kept])
        nodes = []
        for node, drawn in enumerate(tree.drawn[:NODES]):
            above = tree.parent[node]
            record: dict[str, Any] = {"parent": max(above, -1), "text": None}
            if drawn.token != HOLE:  # a hole is no guess: the model is asked what would stand there
                record |= {"text": self._words.name(drawn.token), "p": _short(checked.scored.raw(above)[drawn.token])}
            if drawn.token != HOLE and not isinstance(drawn.law, Point):
                record["q"] = _short(drawn.law[drawn.token])
            nodes.append(record | {"accepted": node in path})
        return {"nodes": nodes, "size": len(tree)}

    def _changes(self, canvas: Canvas) -> dict[str, Any]:
        """The places behind the prompt that are not as they were told last: [place, text, look, final]."""
        filled = zip(canvas.tokens, canvas.filled, canvas.status, strict=True)
        now = [(HOLE if s == Status.HOLE else x, look, s) for x, look, s in filled][self._prompt :]
        changes = []
        for place, (token, look, status) in enumerate(now):
            if place >= len(self._canvas) or self._canvas[place] != (token, status):
                text = None if token == HOLE else self._words.name(token)
                changes.append([place, text, look + 1, status in (Status.GIVEN, Status.FIXED)])
        self._canvas = [(token, status) for token, _, status in now]
        return {"size": len(now), "changes": changes}


def _short(p: float) -> float:
    return float(f"{p:.4g}") if math.isfinite(p) else 0.0

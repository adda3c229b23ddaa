"""An answer read off thoughts that are not finished: guesses of how they go on stand in for the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...core.asks import Decoding, Done, Emit, Score, Scores
from ...core.chance import Chance
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest
from ...core.law import chosen
from ...core.option import expect, whole
from ...core.stop import Stop
from ...core.tree import Tree
from ...core.warp.warp import Prefix, Warp
from ...loops.guard import unbound
from ...loops.plain import write_on
from ..constrain.form import FormVocabulary, refuse_half_characters, spelt
from ..draft.jacobi import bigrams
from .capped_jacobi import guessed, kept


@claims(
    HEURISTIC,
    name="early_answer",
    trials=lambda rule: [rule((0,), 1, 1), rule((1,), 2, 2)],
    paper="2311.08263",
    systems=("FastCoT (early answer)",),
)
@dataclass(frozen=True)
class EarlyAnswer:
    """Think for `rounds` forwards with a window of `window` guesses; then write the window, `cue`, and the answer.

    Each forward makes at least one token certain, and guesses the next ones anew, as `jacobi` does. When the time to
    think is over the guesses stand as they are, a glance at where the thoughts were going, and the words of the cue ask
    for the answer, which is decoded plainly. A text that ends before that is plain decoding's. The window of the paper
    varies, by a rule that was not found; the cue is ours.

    Claim: HEURISTIC. The answer follows thoughts that are cut short and partly guessed; what is certain before the cue
    is plain decoding's text, seed for seed. Under a constraint it is refused, since the cue asks nobody.
    Cost: `rounds` forwards over the window, one over the cue, one per token of the answer.
    """

    cue: str | tuple[int, ...] = "\nSo the answer is"
    rounds: int = 24
    window: int = 8

    def __post_init__(self) -> None:
        expect(whole(self.rounds, 1), "early_answer:rounds", self.rounds, "a whole number of forwards from 1 on")
        expect(whole(self.window, 0), "early_answer:window", self.window, "a whole number of guesses, 0 for none")
        if isinstance(self.cue, str):
            refuse_half_characters("early_answer:cue", self.cue)

    def fit(self, vocabulary: FormVocabulary) -> EarlyAnswer:
        return replace(self, cue=spelt(self.cue, vocabulary)) if isinstance(self.cue, str) else self

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        if isinstance(self.cue, str):
            raise BadRequest(
                "early_answer has to know the tokens: run it by name, or give EarlyAnswer(…).fit(vocabulary)"
            )
        unbound(warp, "early_answer")
        tail = stop.start()
        prefix = Prefix.of(text, warp, stop.left(tail))
        guesses: tuple[int, ...] = ()
        for number in range(1, self.rounds + 1):
            size = int(min(self.window, prefix.left - 1, stop.spare))
            guesses = (guesses + bigrams(prefix.text + guesses, max(0, size - len(guesses))))[:size]
            found = yield from guessed(prefix, guesses, chance)
            new = len(found.tokens) if number == self.rounds else found.certain
            done, reason, tail, trim = stop.cut(tail, found.tokens[:new])
            yield Emit(done, found.before[:new], found.after[:new], len(guesses), min(found.certain, len(done)) - 1)
            prefix = prefix.then(done)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)
            yield kept(done)
            guesses = found.tokens[new:]
        if prefix.left > len(self.cue) > 0:
            scores: Scores = yield Score(Tree.chain([chosen(x) for x in self.cue[:-1]]))
            laws = [scores.leaf[0], *scores.after]
            done, reason, tail, trim = stop.cut(tail, self.cue)
            yield Emit(done, laws[: len(done)], laws[: len(done)])
            prefix = prefix.then(done)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)
            yield kept(done)
        while True:
            prefix, (_, reason, tail, trim) = yield from write_on(prefix, chance, stop, tail)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim)

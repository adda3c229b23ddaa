"""Templates: text, word, text, word …, where the words are given and what stands between them is written."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import torch

from ...core.asks import Decoding, Done, Emit, Keep, Score, Scores
from ...core.canvas import Binding
from ...core.chance import At, Chance, Role
from ...core.claim import HEURISTIC, claims
from ...core.errors import BadRequest
from ...core.law import Law
from ...core.option import expect, level, whole
from ...core.stop import Stop
from ...core.tree import NOTHING, ROOT
from ...core.warp.warp import Prefix, Same, Warp
from ...loops.guard import forbids, parts
from ..constrain.form import FormVocabulary, spelt


@dataclass(frozen=True)
class Word:
    """A word of a template: its bytes, and its tokens at the beginning of a text and behind something."""

    data: bytes
    first: tuple[int, ...]
    later: tuple[int, ...]


@claims(
    HEURISTIC,
    trials=lambda rule: [rule((Word(b"b", (1,), (1,)),), longest) for longest in (1, 24)],
    paper="2211.08387",
    systems=("AutoTemplate (decoding; a causal model's end of text for its sentinels)",),
)
@dataclass(frozen=True)
class Template:
    """Write, and where the model would end the text, or after `longest` tokens, copy the next of the `words` instead.

    All words stand in the text, in the order given: they are copied and not hoped for. A word that the model writes by
    itself counts. Words that would not fit any more are copied before the text is cut. The paper trains a seq2seq
    model to write what stands between sentinels; here the end of a text says what a sentinel says there, that this
    piece is finished, so that any causal model can fill a template. `constrain/sentinel_form.py` has the paper's
    own linearisation for a model that was trained on it.

    A word also comes as soon as the model gives its first token at least `weave`: so it stands where it fits. Under a
    constraint, or beside tokens that are forbidden (bad_words, no_repeat_ngram_size, a bias of −∞), it is copied where
    all of it is allowed, and waits until then; a text that ends before that lacks it, and a note says so.

    Claim: HEURISTIC: the law of a text with given words is not the model's. Without words it is plain decoding, seed
    for seed, as the tests enumerate.
    Cost: one forward per token. A stop string ends the text even if words are missing.
    """

    words: tuple[str, ...] | tuple[Word, ...] = ()
    longest: int = 24
    weave: float = math.inf

    def __post_init__(self) -> None:
        fits = all(isinstance(word, Word) or (isinstance(word, str) and word.strip()) for word in self.words)
        expect(fits and isinstance(self.words, tuple), "template:words", self.words, "words that are not empty")
        expect(level(self.weave), "template:weave", self.weave, "a probability; above 1 no word is woven in")
        expect(whole(self.longest, 1), "template:longest", self.longest, "a whole number of tokens from 1 on")

    def fit(self, vocabulary: FormVocabulary) -> Template:
        words = tuple(word if isinstance(word, Word) else _word(word, vocabulary) for word in self.words)
        return replace(self, words=words)

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        tail = stop.start()
        bound = reduce(or_, (part for part in parts(warp) if isinstance(part, Binding) or forbids(part)), Same())
        prefix, state = Prefix.of(text, warp, stop.left(tail)), bound.start(text)
        missing, copied, filler = self._fitted(prefix.left), list[int](), list[int]()
        while True:
            scores: Scores = yield Score()
            raw = scores.leaf[0]
            law = prefix.shape(raw)
            word = missing[0].later if missing and len(prefix) > len(text) else missing[0].first if missing else ()
            fits = bool(missing) and not copied and _allows(bound, state, word, raw.size)
            if fits and (self._is_due(missing, filler, prefix) or raw[word[0]] >= self.weave):
                copied, missing, filler, fits = list(word), missing[1:], [], False
            drawn = None if copied else law.draw(chance, At(len(prefix), Role.PICK)).token
            if fits and drawn in stop.tokens:  # the piece is finished
                copied, missing, filler = list(word), missing[1:], []
                drawn = None
            token = copied.pop(0) if drawn is None else drawn
            kept, reason, tail, trim = stop.cut(tail, (token,))
            yield Emit(kept, [raw], [law])
            prefix, state = prefix.then(kept), bound.step(state, token)
            if reason:
                return Done(prefix.text[len(text) :], reason, trim, _lacking(missing, copied))
            yield Keep(NOTHING, (ROOT,), (token,))
            if drawn is None:
                continue
            filler.append(token)
            if missing and stop.piece is not None and missing[0].data in b"".join(map(stop.piece, filler)):
                missing, filler = missing[1:], []

    def _fitted(self, room: float) -> list[Word]:
        words = [word for word in self.words if isinstance(word, Word)]
        if len(words) < len(self.words):
            raise BadRequest("a template has to know the tokens: run it by name, or give Template(…).fit(vocabulary)")
        need = sum(len(word.later) for word in words)
        if need > room:
            raise BadRequest(f"the words of the template are {need} tokens, but only {room} may be written")
        return words

    def _is_due(self, missing: list[Word], filler: list[int], prefix: Prefix) -> bool:
        """Whether the next word has to come now: the piece is long enough, or there is only room for the words."""
        return len(filler) >= self.longest or sum(len(word.later) for word in missing) >= prefix.left


def _lacking(missing: list[Word], copied: list[int]) -> str | None:
    """What to say of a text that ended before all words stood in it."""
    listed = [word.data.decode() for word in missing]
    if not listed and not copied:
        return None
    said = ", ".join(listed[:8]) + (" …" if len(listed) > 8 else "") if listed else "the end of the last"
    mend = "Raise max_tokens, or loosen the form or what is forbidden."
    return f"the text ended without these words of the template: {said}. {mend}"


def _allows(bound: Warp, state: Any, word: tuple[int, ...], size: int) -> bool:
    """Whether a constraint and what is forbidden allow all tokens of a word, one after the other."""
    if isinstance(bound, Same):
        return True
    even = Law(torch.zeros(size))  # whatever the model thinks of them
    for token in word:
        law = bound(state, even)
        if law.is_empty() or law[token] == 0:
            return False
        state = bound.step(state, token)
    return True


def _word(word: str, vocabulary: FormVocabulary) -> Word:
    plain, behind = spelt(word, vocabulary), spelt(f" {word}", vocabulary)
    return Word(word.encode(), plain, behind)

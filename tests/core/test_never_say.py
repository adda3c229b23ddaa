"""Texts that are never written: in every spelling, and on canvases from both sides, by brute force."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from canvases import Noise
from letters import Letters

from unspool.api.settings import Settings
from unspool.core.canvas import HOLE
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.warp.never_say import NeverSay, Pieces, pieces_of
from unspool.recipes.methods import fitted
from unspool.runtime.engine.engine import Engine

WORDS = Letters(("a", "b", " ", "ab", "ba", "a b", " ab", "b.", "bé", "."), controls=1, ends=1)
LETTERS = b"ab"


def occurs(tokens, text):
    """The numbers of the tokens that each occurrence of a text covers, where it begins and ends as a word or token."""
    pieces = [WORDS.piece(token) for token in tokens]
    whole, edges, at = b"".join(pieces), {0}, 0
    owner = [n for n, piece in enumerate(pieces) for _ in piece]
    for piece in pieces:
        at += len(piece)
        edges.add(at)
    for begin in range(len(whole) - len(text) + 1):
        end = begin + len(text)
        if whole[begin:end] != text:
            continue
        first = begin in edges or text[0] not in LETTERS or whole[begin - 1] not in LETTERS
        last = end in edges or text[-1] not in LETTERS or (whole[end] not in LETTERS and whole[end] < 0x80)
        if first and last:
            yield {*owner[begin:end]}


@pytest.mark.parametrize("text", ["a", "ab", "aba", "b a", " b", "ab.", "."])
def test_a_token_is_banned_if_and_only_if_it_completes_the_text(text):
    warp = NeverSay((text.encode(),), Pieces(WORDS))
    for n in range(4):
        for prefix in product(range(9), repeat=n) if n < 3 else [*product((0, 3, 4, 6), repeat=3)]:
            law = warp(warp.start(prefix), Law.of([1.0] * WORDS.size))
            for token in range(len(WORDS.pieces)):
                ends_here = any(n in covered for covered in occurs((*prefix, token), text.encode()))
                assert (law[token] == 0) == ends_here, (prefix, token)


def test_on_a_canvas_both_sides_count():
    random = Random(3)
    warp = NeverSay((b"aba", b"b a", b"ab."), Pieces(WORDS))
    for _ in range(1500):
        tokens = [random.choice((HOLE, *range(10), *range(10))) for _ in range(7)]
        place = random.randrange(7)
        tokens[place] = HOLE
        low = max((i + 1 for i in range(place) if tokens[i] == HOLE), default=0)
        high = min((i for i in range(place + 1, 7) if tokens[i] == HOLE), default=7)
        banned = warp.beside(tokens, 1, place).tokens
        for token in range(len(WORDS.pieces)):
            run = [*tokens[low:place], token, *tokens[place + 1 : high]]
            covered = [c for text in warp.texts for c in occurs(run, text)]
            if any(place - low in each for each in covered):
                assert token in banned, (tokens, place, token)
            elif token in banned:  # what would end inside a token behind it may be banned for nothing, and no more
                assert any(text[:1] in WORDS.piece(token) for text in warp.texts)


def written(name, settings, seed, size=None):
    engine = Engine({"target": Noise(WORDS.size, seed)})
    job = engine.submit(fitted(name, WORDS), (0, 2), Philox(seed), settings.warp(WORDS), settings.stop_rule(WORDS))
    engine.run()
    return job.result().tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ["plain", "lookup", "beam", "confident", "confident:threshold=0.1", "renoise", "edit"])
def test_a_bad_word_is_written_in_no_spelling(name, temperature):
    settings = Settings(bad_words=("ab", "b a"), max_tokens=8, temperature=temperature)
    for seed in range(4):
        tokens = written(name, settings, seed)
        assert not [*occurs(tokens, b"ab"), *occurs(tokens, b"b a")], WORDS.decode(tokens)


def test_words_inside_others_are_left_alone():
    words = Letters(("cat", "category", " category", "y", "es", "yes", "es!", "esp", " ", "x"))
    warp = NeverSay((b"cat", b"yes"), pieces_of(words))
    assert pieces_of(words) is pieces_of(words)
    even = Law.of([1.0] * words.size)
    banned = {words.pieces[t] for t in range(10) if warp(warp.start(()), even)[t] == 0}
    assert banned == {"cat", "yes"}
    banned = {words.pieces[t] for t in range(10) if warp(warp.start((3,)), even)[t] == 0}
    assert banned == {"cat", "yes", "es", "es!"}
    with pytest.raises(BadRequest, match="empty"):
        NeverSay((b"",), pieces_of(words))

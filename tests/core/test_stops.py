"""Stops: a text is cut at its first end, however tokens and blocks split it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unspool.api.settings import Settings
from unspool.core.law import Drawn, Law
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree

quick = settings(max_examples=150, deadline=None)

PIECES = [
    b"a",
    b"b",
    b"ab",
    b"ba",
    b"aab",
    b"",
    "é".encode(),
    "é".encode()[:1],
    "é".encode()[1:],
    b"a\xc3",
    b"\xa9b",
    b"bb",
]
tokens = st.lists(st.integers(0, len(PIECES) - 1), max_size=14)
strings = st.lists(st.sampled_from(["a", "ab", "bb", "aba", "é", "bé", "éb", "aabb", "éé"]), max_size=3).map(tuple)
stops = st.builds(
    Stop,
    tokens=st.frozensets(st.integers(0, len(PIECES) - 1), max_size=2),
    strings=strings,
    most=st.none() | st.integers(1, 10),
    piece=st.just(PIECES.__getitem__),
)


def whole(found, pieces=PIECES):
    """The text that a cut leaves."""
    text = b"".join(pieces[x] for x in found.kept)
    return text[: len(text) - found.trim]


@quick
@given(stops, tokens, st.lists(st.integers(0, 14), max_size=6))
def test_blocks_of_any_size_are_cut_as_single_tokens_are(stop, new, borders):
    at_once = stop.cut(stop.start(), new)
    ends = sorted({*(b for b in borders if b < len(new)), len(new)})
    for pieces in ([[x] for x in new], [new[a:b] for a, b in zip([0, *ends], ends, strict=False)]):
        kept, tail, found = (), stop.start(), None
        for block in pieces:
            found = stop.cut(tail, block)
            kept, tail = kept + found.kept, found.tail
            if found.reason:
                break
        if found is None:
            assert new == []
        else:
            assert (kept, found.reason, found.trim, found.tail) == (
                at_once.kept,
                at_once.reason,
                at_once.trim,
                at_once.tail,
            )


@quick
@given(stops, tokens)
def test_the_cut_is_at_the_first_token_that_ends_the_text(stop, new):
    """By definition, from the whole text: no tail, no window."""
    expected = None
    for i in range(1, len(new) + 1):
        text = b"".join(PIECES[x] for x in new[:i])
        if new[i - 1] in stop.tokens:
            expected = i, "token"
        elif any(s.encode() in text for s in stop.strings):
            expected = i, "string"
        elif stop.most is not None and i >= stop.most:
            expected = i, "length"
        if expected:
            break
    found = stop.cut(stop.start(), new)
    assert (len(found.kept), found.reason) == (expected or (len(new), None))
    assert found.kept == tuple(new[: len(found.kept)])
    assert found.tail.tokens == len(found.kept)


@quick
@given(strings.filter(any), st.binary(max_size=16).map(lambda b: bytes(b"ab\xc3\xa9"[x % 4] for x in b)), st.data())
def test_the_text_does_not_depend_on_how_tokens_split_it(needles, text, data):
    """It ends before the stop string that is complete first; of several, before the longest."""
    expected = text
    for end in range(len(text) + 1):
        complete = [s.encode() for s in needles if text[:end].endswith(s.encode())]
        if complete:
            expected = text[: end - max(map(len, complete))]
            break
    borders = sorted(data.draw(st.sets(st.integers(0, len(text)))) | {0, len(text)})
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    stop = Stop(strings=needles, piece=pieces.__getitem__)
    assert whole(stop.cut(stop.start(), range(len(pieces))), pieces) == expected


def cut(pieces, *needles, **limits):
    stop = Stop(strings=needles, piece=pieces.__getitem__, **limits)
    return stop.cut(stop.start(), range(len(pieces)))


def test_a_stop_string_across_tokens_is_taken_back_from_all_of_them():
    found = cut([b"one E", b"N", b"D two", b"three"], "END")
    assert found.kept == (0, 1, 2)
    assert found.reason == "string"
    assert found.trim == len(b"END two")


def test_a_stop_string_of_many_bytes_across_broken_characters():
    pieces = [b"x\xf0\x9f", b"\x98", b"\x80!\xe2\x82", b"\xacy"]  # x😀!€y
    found = cut(pieces, "😀!€")
    assert found.kept == (0, 1, 2, 3)
    assert whole(found, pieces) == b"x"


def test_half_a_character_is_no_character():
    assert cut([b"\xe2\x82", b"z"], "€").reason is None


def test_of_several_stop_strings_the_first_to_be_complete_wins():
    assert whole(cut([b"abcdef"], "def", "bc"), [b"abcdef"]) == b"a"
    assert whole(cut([b"abcdef"], "abcdef", "bc"), [b"abcdef"]) == b"a"
    assert whole(cut([b"abcdef"], "c", "abc"), [b"abcdef"]) == b""


@pytest.mark.parametrize(
    ("tokens", "most", "reason", "trim"),
    [
        ({1}, 2, "token", 2),
        (set(), 2, "string", 2),
        (set(), 3, "string", 2),
        ({0}, 2, "token", 0),
        (set(), 1, "length", 0),
    ],
)
def test_token_beats_string_beats_length(tokens, most, reason, trim):
    # the text ends before a stop string even where a stop token gives the reason
    found = cut([b"a", b"b!"], "b", tokens=frozenset(tokens), most=most)
    assert (found.reason, found.trim) == (reason, trim)


def test_a_stop_token_stays_among_the_tokens():
    stop = Stop(tokens=frozenset({3}))
    assert stop.cut(stop.start(), (1, 3, 2))[:2] == ((1, 3), "token")


def test_length_counts_over_blocks():
    stop = Stop(most=4)
    first = stop.cut(stop.start(), (1, 2, 3))
    second = stop.cut(first.tail, (4, 5, 6))
    assert (first.kept, first.reason) == ((1, 2, 3), None)
    assert (second.kept, second.reason) == ((4,), "length")


def test_time_ends_a_text_with_the_first_tokens_after_it():
    """All of them, as they are there: a canvas that is filled in one go would else come down to one token."""
    now = [100.0]
    stop = Stop(seconds=5.0, most=9, clock=lambda: now[0])
    tail = stop.start()
    now[0] = 104.9
    early = stop.cut(tail, (1, 2))
    assert early.reason is None
    now[0] = 105.0
    late = stop.cut(early.tail, (3, 4))
    assert (late.kept, late.reason) == ((3, 4), "time")
    assert stop.cut(early.tail, ()).reason is None  # nothing came
    assert stop.cut(early.tail._replace(tokens=8), (3, 4)).reason == "length"
    assert stop.start().deadline == 110.0  # every text has its own


def test_without_limits_nothing_is_cut():
    stop = Stop()
    assert stop.cut(stop.start(), range(1000))[:2] == (tuple(range(1000)), None)
    assert stop.cut(stop.start(), ())[:2] == ((), None)


@quick
@given(stops, tokens, st.integers(0, 12))
def test_what_counts_tokens_and_what_looks_at_each_say_the_same(stop, new, before):
    """A deadline that never comes makes every token be looked at."""
    by_count = replace(stop, strings=())
    by_token = replace(by_count, seconds=1e9)
    fast = by_count.cut(by_count.start()._replace(tokens=before), new)
    slow = by_token.cut(by_token.start()._replace(tokens=before), new)
    assert (fast.kept, fast.reason, fast.tail.tokens) == (slow.kept, slow.reason, slow.tail.tokens)


def test_the_tail_does_not_grow_with_the_text():
    stop = Stop(strings=("abc",), piece=lambda x: b"xyz")
    assert stop.cut(stop.start(), range(100)).tail.bytes == b"yz"


def test_strings_need_pieces_and_letters():
    with pytest.raises(ValueError, match="piece"):
        Stop(strings=("a",))
    with pytest.raises(ValueError, match="empty"):
        Stop(strings=("a", ""), piece=PIECES.__getitem__)


class Words:
    size, eos = 10, frozenset({2})

    def piece(self, token):
        return b"w"

    def encode(self, text, special=True):
        return ()


def test_settings_say_where_the_text_ends():
    rule = Settings(stop=("x",), stop_tokens=(5,), max_tokens=7, seconds=3).stop_rule(Words())
    assert (rule.tokens, rule.strings, rule.most, rule.seconds) == ({2, 5}, ("x",), 7, 3)
    assert rule.piece(4) == b"w"
    assert Settings(ignore_eos=True, stop_tokens=(5,)).stop_rule(Words()).tokens == {5}
    assert Settings().stop_rule(Words()).cut(rule.start(), (1, 2, 3)).kept == (1, 2)


def test_nodes_that_end_a_text_are_numbered_as_the_pruned_draft_has_them():
    drawn = [Drawn(token, Law.point(token)) for token in (9, 1, 2, 9, 3)]
    tree = Tree(tuple(drawn), (ROOT, 0, ROOT, ROOT, 2))  # the second hangs behind a token that ends the text
    pruned, last = Stop(frozenset({9})).prune(Stop().start(), tree)
    assert pruned.tokens(range(len(pruned))) == (9, 2, 9, 3)
    assert last == {0, 2}

"""Grammars over terminals: against brute force on toys, and on a real vocabulary."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from letters import Letters

from unspool.core.canvas import HOLE
from unspool.core.errors import BadRequest
from unspool.rules.constrain import cfg, grammar, read_cfg
from unspool.rules.constrain.context_free import BODIES
from unspool.rules.constrain.regular import Nfa
from unspool.rules.constrain.scanner import Scanner

JSON = cfg(
    {
        "V": ["OBJECT", "ARRAY", "STRING", "NUMBER", "true", "false", "null"],
        "OBJECT": ["{ }", "{ MEMBERS }"],
        "MEMBERS": ["PAIR", "PAIR , MEMBERS"],
        "PAIR": ["STRING : V"],
        "ARRAY": ["[ ]", "[ ITEMS ]"],
        "ITEMS": ["V", "V , ITEMS"],
    },
    {"STRING": r'"[^"\\\x00-\x1f]*"', "NUMBER": r"-?(0|[1-9][0-9]*)"},
    ignore=r"[ \n]+",
)
PROGRAM = cfg(
    {
        "P": ["S", "S P"],
        "S": ["NAME = E ;", "while E { P }", "print E ;"],
        "E": ["T", "T + E", "T < E"],
        "T": ["NAME", "NUMBER", "( E )"],
    },
    {"NAME": "[a-z][a-z0-9_]*", "NUMBER": "[0-9]+"},
    ignore=r"\s+",
)

# ---- patterns


@pytest.mark.parametrize(
    "pattern",
    ["a|bc*", "(ab){2,3}", "[^b]", "a.c", r"\d+(\.\d{2})?", "[a-c-]+", r"(?:x|yy){0,2}z", "ä|[α-ω]", r"\W[]]", "a{2,}"],
)
def test_a_pattern_matches_what_it_matches_elsewhere(pattern):
    scanner = Scanner.of([pattern], frozenset())
    for letters in itertools.product(["a", "b", "c", "1", ".", "x", "y", "z", "ä", "λ", "-", "]", "€"], repeat=3):
        for size in (1, 2, 3):
            text, state = "".join(letters[:size]), 0
            for byte in text.encode():
                state = scanner.steps[state][byte] if state >= 0 else -1
            assert (state >= 0 and bool(scanner.whole[state])) == bool(re.fullmatch(pattern, text, re.ASCII)), text


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0x10FFFF), (0x7E, 0x81), (0x7FF, 0x801), (0xD000, 0xE001), (0x10FFF, 0x11001)]
)
def test_a_range_of_characters_is_spelt_in_utf_8(low, high):
    scanner = Scanner.of([f"[{chr(low)}-{chr(high)}]".replace("\0", r"\0")], frozenset())
    for code in {
        0,
        1,
        0x7F,
        0x80,
        0x7FF,
        0x800,
        0xD7FF,
        0xE000,
        0xFFFF,
        0x10000,
        0x10FFFF,
        low,
        high,
        (low + high) // 2,
        max(low - 1, 0),
        min(high + 1, 0x10FFFF),
    }:
        state = 0
        for byte in chr(code).encode("utf-8", "replace"):
            state = scanner.steps[state][byte] if state >= 0 else -1
        if not 0xD800 <= code < 0xE000:
            assert (state >= 0 and bool(scanner.whole[state])) == (low <= code <= high), hex(code)


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "end too early"),
        (")", "closes nothing"),
        ("a{3,1}", "falls"),
        ("a{9999}", "0 to 1000"),
        ("((a{1000}){1000}){1000}", "states"),
        ("[z-a]", "range"),
        ("^a", "anchor"),
        ("(?=a)", "kind"),
        (r"\p", "unknown"),
        ("a" * 3000, "characters"),
        ("(" * 1999, "deeply|end too early"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_refused_in_words(pattern, said):
    nfa = Nfa()
    with pytest.raises(BadRequest, match=said):
        nfa.pattern(pattern, nfa.state())


def test_terminals_that_match_nothing_or_the_empty_text_are_refused():
    words = Letters(("a",))
    with pytest.raises(BadRequest, match="empty text"):
        cfg({"S": ["A"]}, {"A": "a*"}).fit(words)
    with pytest.raises(BadRequest, match="no text at all"):
        cfg({"S": ["A S"]}, {"A": "a"}).fit(words)
    for terminals in ({"S": "a"}, {"A": ""}, ["a"], {"A": 1}):
        with pytest.raises(BadRequest, match="terminals"):
            cfg({"S": ["A"]}, terminals)
    with pytest.raises(BadRequest, match="surrogates"):
        cfg({"S": ["A"]}, {"A": "\ud800"})


# ---- against brute force

TOYS = {
    "brackets": (cfg({"S": ["L S R S", ""]}, {"L": r"\(|<", "R": r"\)"}), Letters(("(", ")", "()", "<", "))"))),
    "sums": (cfg({"E": ["N", "E + E"]}, {"N": "[12]+"}, ignore=" "), Letters(("1", "2+", "+", " ", "1 "))),
    "quotes": (cfg({"S": ["Q"]}, {"Q": "<[ab]+>"}), Letters(("<", ">", "a", "ab", "b>"))),  # one terminal over all gaps
    "words": (cfg({"S": ["if N", "N", "S ; S"]}, {"N": "[fi]+"}), Letters(("i", "f", "if", ";", "f;i"))),
}


def all_texts(form, words, longest):
    """Every text of so many tokens, by the rules of llguidance-free reading: token by token."""
    found, states = {}, {(): form.fit(words).start()}
    for size in range(longest + 1):
        found[size] = [text for text, state in states.items() if state.complete()]
        pairs = ((text, state, token) for text, state in states.items() for token in range(len(words.pieces)))
        states = {(*text, token): state.step(token) for text, state, token in pairs if state.allows(token)}
    return found


@pytest.mark.parametrize("toy", TOYS)
def test_a_text_with_holes_is_filled_if_and_only_if_one_fits(toy):
    form, words = TOYS[toy]
    fitted, texts = form.fit(words), all_texts(form, words, 4)
    missed = 0
    for size in range(1, 5):
        for text in itertools.product((HOLE, *range(len(words.pieces))), repeat=size):
            fits = any(all(a in (HOLE, b) for a, b in zip(text, each, strict=True)) for each in texts[size])
            found = fitted.filled(text)
            assert fits or found is None, text
            if found is not None:
                assert found in texts[size]
                assert all(a in (HOLE, b) for a, b in zip(text, found, strict=True))
            if fits:
                assert fitted.possible(text), text
                missed += found is None
    assert missed == 0


@pytest.mark.parametrize("toy", TOYS)
def test_what_is_called_impossible_is_so_whatever_the_gaps_length(toy):
    form, words = TOYS[toy]
    fitted, texts = form.fit(words), all_texts(form, words, 5)
    for size in range(1, 4):
        for text in itertools.product((HOLE, *range(len(words.pieces))), repeat=size):
            parts = "".join("(?:.+)" if token == HOLE else chr(65 + token) for token in text)
            pattern = re.compile(parts + "$" if text[-1] != HOLE else parts[: -len("(?:.+)")] + "(?:.*)$")
            spelt = ("".join(chr(65 + token) for token in each) for some in texts.values() for each in some)
            if not fitted.possible(text):
                assert not any(pattern.match(each) for each in spelt), text


@pytest.mark.parametrize("toy", TOYS)
def test_left_to_right_the_mask_is_what_is_allowed(toy):
    form, words = TOYS[toy]
    states = [form.fit(words).start()]
    for _ in range(4):
        for state in states:
            assert state.mask().tolist() == [state.allows(token) for token in range(words.size)]
        states = [state.step(token) for state in states for token in range(len(words.pieces)) if state.allows(token)]


def test_it_is_the_grammar_that_llguidance_reads():
    words = Letters(("1", "+", "(", ")", "1+", "+(", "))"))
    ours = cfg({"E": ["T", "T + E"], "T": ["1", "( E )"]}).fit(words).start()
    lexed = cfg({"E": ["T", "T + E"], "T": ["ONE", "( E )"]}, {"ONE": "1"}).fit(words).start()
    theirs = grammar('start: t | t "+" start\nt: "1" | "(" start ")"').fit(words).start()

    def compare(states, depth):
        assert states[0].mask().tolist() == states[1].mask().tolist() == states[2].mask().tolist()
        for token in states[0].mask().nonzero().flatten().tolist() if depth else ():
            compare([state.step(token) for state in states], depth - 1)

    compare([ours, lexed, theirs], 3)


def test_what_takes_too_long_is_a_no_on_a_canvas_and_an_error_left_to_right(monkeypatch):
    form, words = TOYS["brackets"]
    fitted = form.fit(words)
    state = fitted.start()
    monkeypatch.setattr("unspool.rules.constrain.lexed.WORK", 3)
    assert fitted.filled((HOLE, HOLE)) is None
    with pytest.raises(BadRequest, match="too much work"):
        state.step(0)


# ---- on a real vocabulary


def canvas(words, text):
    """Tokens of a text in which every _ is a hole."""
    parts = [list(words.encode(part, special=False)) for part in text.split("_")]
    return [token for i, part in enumerate(parts) for token in ([HOLE, *part] if i else part)]


@pytest.fixture(scope="module")
def fitted(smollm2):
    return {"json": JSON.fit(smollm2.vocabulary), "program": PROGRAM.fit(smollm2.vocabulary)}


@pytest.mark.parametrize(
    ("kind", "text", "possible"),
    [
        ("json", '{"a"_1_', True),
        ("json", '[1, _, {"b__}]', True),
        ("json", '{_____"x": [_]_}', True),
        ("json", "__tru__", True),
        ("json", '{"a" 1_', False),
        ("json", "1 _ 2", False),
        ("json", '_ "a" : ]_', False),
        ("program", "while __ { x = 1; }", True),
        ("program", "x _ 1__print", False),
        ("program", "x _ 1__print _;", True),
        ("program", "_ = = _", False),
        ("program", "____", True),
    ],
)
def test_canvases_of_real_tokens(fitted, smollm2, kind, text, possible):
    asked, words = fitted[kind], smollm2.vocabulary
    tokens = canvas(words, text)
    assert asked.possible(tokens) == possible
    found = asked.filled(tokens)
    assert (found is not None) == possible
    if found is not None:
        assert len(found) == len(tokens)
        assert all(a in (HOLE, b) for a, b in zip(tokens, found, strict=True))
        state = asked.start()
        for token in found:
            assert state.allows(token)
            state = state.step(token)
        assert state.complete()
        if kind == "json":
            json.loads(words.decode(found))


def test_holes_at_the_end_may_be_left_out(fitted, smollm2):
    words = smollm2.vocabulary
    found = fitted["json"].finished(canvas(words, '{"a": [1_________'))
    assert found is not None
    assert len(found) < 9
    assert json.loads(words.decode(found))["a"][0] == 1
    assert fitted["json"].finished(canvas(words, "{}____")) == tuple(words.encode("{}", special=False))


def test_the_mask_of_a_real_vocabulary_is_what_is_allowed(fitted, smollm2):
    state, chosen = fitted["json"].start(), torch.randperm(smollm2.vocabulary.size)[:300].tolist()
    for token in canvas(smollm2.vocabulary, '{"name": ["Bo'):
        mask = state.mask()
        assert mask[token]
        assert [bool(mask[t]) for t in chosen] == [state.allows(t) for t in chosen]
        state = state.step(token)


def test_a_table_of_rules_is_read_from_a_file(loaded, tmp_path):
    (tmp_path / "sum.json").write_text('{"rules": {"E": ["N", "N + E"]}, "terminals": {"N": "[1-9]"}, "ignore": " "}')
    given = ("--cfg", str(tmp_path / "sum.json"), "--max-tokens", "12", "--method", "plain", "--within", "8")
    status, out, err = loaded("run", "A sum?", *given)
    assert status == 0, err
    assert re.fullmatch(r" *[1-9]( *\+ *[1-9])* *", out.strip("\n"))
    for wrong in ("[", "[]", "{}", '{"rules": {"S": ["a"]}, "more": 1}', '{"rules": {"S": "a"}}', "[" * 100_000):
        with pytest.raises(BadRequest):
            read_cfg(wrong)


def test_a_table_of_too_many_rules_is_refused():
    chain = {f"A{i}": [f"A{i + 1}"] for i in range(BODIES)}
    with pytest.raises(BadRequest, match=f"{BODIES + 1}; expected at most {BODIES}"):
        cfg({**chain, f"A{BODIES}": ["a"]})

"""Token healing: a prompt that ends inside a token."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from letters import Letters
from serving import serving

from unspool import Settings, choices, regex
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.rules.constrain import Begun, Constrained, taken_back

WORDS = Letters(("a", "b", "ab", "abc", " ", " a", "c", "bc "))


def spelt(text):
    """Every way to write a text in tokens."""
    if not text:
        return [()]
    fits = [t for t, piece in enumerate(WORDS.pieces) if text.startswith(piece)]
    return [(t, *rest) for t in fits for rest in spelt(text[len(WORDS.pieces[t]) :])]


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [("ca", b"a"), ("cab", b"ab"), ("c ", b" "), ("ccc", b""), ("cabc", b"bc"), ("a", b""), ("cb", b"b")],
)
def test_the_last_tokens_are_taken_back_while_a_longer_token_begins_with_them(text, bytes_):
    tokens = {"cabc": (6, 0, 1, 6)}.get(text, WORDS.encode(text))
    assert taken_back(tokens, WORDS) == bytes_


def test_control_tokens_are_not_taken_back():
    control = len(WORDS.pieces)
    assert taken_back((6, control), WORDS) == b""
    assert taken_back((6, 0, control, 0), WORDS) == b"a"


@pytest.mark.parametrize("begin", [b"a", b"ab", b"abc ", b" "])
def test_what_may_come_are_the_texts_that_begin_with_the_bytes(begin):
    """All tokens of all lengths: a sequence is allowed if and only if its text and the bytes agree."""
    bound = Begun(begin, None, WORDS)
    for size in (1, 2, 3):
        for tokens in itertools.product(range(len(WORDS.pieces)), repeat=size):
            state, fine = bound.start(), True
            for token in tokens:
                assert state.mask().tolist() == [state.allows(t) for t in range(WORDS.size)]
                fine = fine and state.allows(token)
                state = state.step(token)
            text = WORDS.decode(tokens).encode()
            assert fine == (text.startswith(begin) or begin.startswith(text)), tokens
            assert state.complete() == (fine and text.startswith(begin))


def test_what_follows_the_bytes_meets_the_constraint():
    form = choices("c", "b a")
    bound = Begun(b"ab", form.fit(WORDS), WORDS)
    whole = {
        text for tokens in itertools.product(range(len(WORDS.pieces)), repeat=3) for text in [written(bound, tokens)]
    }
    assert whole - {None} == {"abc", "abb a"}


def written(bound, tokens):
    """The text of these tokens up to where it is complete, if all are allowed until then."""
    state, text = bound.start(), ""
    for token in tokens:
        if not state.allows(token):
            return None
        state, text = state.step(token), text + WORDS.decode((token,))
        if state.complete():
            return text
    return None


def test_the_law_is_the_models_given_the_bytes():
    scores = torch.randn(WORDS.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    warp = Constrained(Begun(b"a", None, WORDS))
    law, plain = warp(warp.start(()), Law(scores)), Law(scores)
    allowed = [0, 2, 3]
    mass = sum(plain[token] for token in allowed)
    assert [law[token] for token in allowed] == pytest.approx([plain[token] / mass for token in allowed])
    assert all(law[token] == 0 for token in range(WORDS.size) if token not in allowed)


def test_a_stop_string_is_not_found_in_the_prompts_own_bytes():
    stop = Stop(strings=("b",), piece=WORDS.piece, skip=2)
    assert stop.cut(stop.start(), (2, 6, 1)).trim == 1
    assert stop.cut(stop.start(), (2, 6, 1)).kept == (2, 6, 1)
    assert stop.cut(stop.start(), (3,)).reason is None
    crossing = stop.cut(stop.start(), (0, 7))
    assert crossing.reason is None  # "a" and "b" are the prompt's, then come "c "


# ---- on a model


def test_a_word_that_was_cut_is_finished(smollm2, one_thread):
    lm = smollm2
    cut = "The capital of France is Par"
    plain = lm.generate(cut, raw=True, max_tokens=6)
    healed = lm.generate(cut, raw=True, max_tokens=6, heal=True)
    assert healed.text.startswith("is")
    assert lm.decode(healed.tokens) == "".join([" Par", healed.text])  # the tokens begin with what was taken back
    assert "".join(event.text for event in healed.events) == healed.text
    assert plain.text  # without it the text goes on from the tokens of " Par"
    drafted = lm.generate(cut, raw=True, max_tokens=6, heal=True, method="lookup")
    assert drafted.tokens == healed.tokens


def test_healing_goes_with_a_constraint_and_with_stops(smollm2, one_thread):
    lm = smollm2
    told = lm.generate(
        "My favourite number is 1", Settings(heal=True, constraint=regex("[0-9]{2}"), max_tokens=6), raw=True
    )
    assert len(told.text) == 2
    assert told.text.isdigit()
    cut = lm.generate("The capital of France is Par", raw=True, max_tokens=8, heal=True, stop=("s", "Par"))
    assert cut.text == "i"
    assert cut.reason == "string"


def test_a_message_cannot_be_healed(smollm2, one_thread):
    lm = smollm2
    with pytest.raises(BadRequest, match="raw=True"):
        lm.generate("The capital of France is Par", heal=True, max_tokens=2)
    with pytest.raises(BadRequest, match="suffix"):
        lm.generate("The capital", raw=True, heal=True, suffix="x", max_tokens=2, method="confident")


def test_it_is_an_option_of_the_command_line(loaded):
    status, out, err = loaded("run", "The capital of France is Par", "--raw", "--heal", "--max-tokens", "4")
    assert (status, out[:2]) == (0, "is"), err


HEAL = {"decoding": {"heal": True}}


def test_it_is_an_option_of_the_server(smollm2, one_thread):
    told = {"prompt": "The capital of France is Par", "max_tokens": 6, "temperature": 0}
    with serving(smollm2) as made:
        healed, plain = (made.post("/v1/completions", **told, decoding={"heal": heal}) for heal in (True, False))
        chat = {"messages": [{"role": "user", "content": "Par"}], "max_tokens": 2, "decoding": {"heal": True}}
        refused = made.post("/v1/chat/completions", **chat), made.post("/v1/completions", **told, suffix="x", **HEAL)
        lines = made.post("/window/decode", **told, **HEAL).text.split("\n\n")[:-2]
    expected = smollm2.generate(told["prompt"], raw=True, max_tokens=6, heal=True)
    assert healed.json()["choices"][0]["text"] == expected.text
    news = [json.loads(line[6:]) for line in lines]
    shown = "".join(token["text"] for each in news if "round" in each for token in each["round"]["tokens"])
    assert shown == expected.text
    assert plain.json()["choices"][0]["text"] == smollm2.generate(told["prompt"], raw=True, max_tokens=6).text
    assert [answer.json()["error"]["param"] for answer in refused] == ["decoding.heal"] * 2

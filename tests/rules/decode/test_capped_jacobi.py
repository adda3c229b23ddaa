"""Guesses that stand without being certain: chunks with a cap, and answers read off unfinished thoughts."""

from __future__ import annotations

from pathlib import Path

import pytest
from littlemodel import chatting_model, loaded
from proposing import answered

from unspool import Settings
from unspool.core.chance import Philox
from unspool.core.claim import HEURISTIC, SEED, fit
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.core.warp import NoRepeatNgram, Prefix, Same, Temperature
from unspool.proof import prove
from unspool.recipes.methods import method, requested
from unspool.recipes.prediction import LARGEST
from unspool.rules.constrain import regex
from unspool.rules.decode import CappedJacobi, EarlyAnswer, from_bigrams, last_chunk
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

PERIOD = 6


def decoded(made, table, prompt=(0,), most=24, warp=None, seed=0):
    engine = Engine({"target": table})
    job = engine.submit(made, prompt, Philox(seed), warp or Temperature(0.0), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


def counting(text):
    return [1.0 if x == (text[-1] + 1) % PERIOD else 0.01 for x in range(PERIOD)]


def mixed(text):
    return [1 + (7 * sum((i + 1) * x for i, x in enumerate(text[-5:])) + x * x) % 5 for x in range(PERIOD)]


COUNTING, MIXED = Table(PERIOD, counting), Table(PERIOD, mixed)


@pytest.mark.parametrize("cap", [0, 3])
def test_without_a_cap_it_is_plain_decoding_seed_for_seed(cap):
    assert prove(CappedJacobi(3, cap), SEED, quick=True).ok


def test_a_cap_bounds_the_forwards_of_a_chunk_and_changes_the_text():
    plain = decoded(method("plain"), MIXED, warp=Same())[0]
    for cap in (1, 2):
        text, trace = decoded(CappedJacobi(6, cap), MIXED, warp=Same())
        assert len(text) == 24
        assert trace.forwards["target"] <= 4 * cap
        assert text != plain
        assert text[0] == plain[0]  # the first token of a forward is always certain
    assert decoded(CappedJacobi(6, 0), MIXED, warp=Same())[0] == plain
    assert not prove(CappedJacobi(3, 1), SEED, quick=True).ok


def test_a_chunk_like_the_last_one_takes_one_forward_from_it():
    """The text counts round, so that after the first chunk every one is its predecessor."""
    warm = decoded(CappedJacobi(PERIOD, 0, last_chunk), COUNTING, most=5 * PERIOD)
    assert warm[0] == decoded(method("plain"), COUNTING, most=5 * PERIOD)[0]
    assert warm[1].forwards["target"] <= PERIOD + 4
    assert last_chunk((0, 1, 2, 1), (5, 4), 4) == (5, 4, 4, 4)
    assert from_bigrams((0, 1, 2, 1), (5, 4), 2) == (2, 1)


def test_what_a_warp_forbids_is_not_guessed_either():
    text, _ = decoded(CappedJacobi(6, 1), MIXED, most=20, warp=NoRepeatNgram(2))
    pairs = list(zip((0, *text), text, strict=False))
    assert len(set(pairs)) == len(pairs)


# ---- an early answer


def test_thoughts_end_after_so_many_forwards_with_the_window_the_cue_and_an_answer():
    plain = decoded(method("plain"), COUNTING)[0]
    text, trace = decoded(EarlyAnswer((3, 3), rounds=2, window=4), COUNTING)
    at = next(i for i in range(len(text)) if text[i : i + 2] == (3, 3))
    assert 2 + 4 <= at <= 2 * 5  # a token is certain in every round, and the window stands in the last
    assert text[0] == plain[0]
    assert len(text) == 24
    assert text[at + 2 :] == tuple((4 + i) % PERIOD for i in range(22 - at))  # the answer follows the cue
    assert trace.forwards["target"] == 2 + 1 + (22 - at)


def test_without_a_window_nothing_is_guessed():
    plain = decoded(method("plain"), MIXED)[0]
    assert decoded(EarlyAnswer((5,), rounds=7, window=0), MIXED)[0][:8] == (*plain[:7], 5)


def test_a_text_that_ends_while_it_thinks_is_plain_decodings():
    assert decoded(EarlyAnswer((5,), rounds=30, window=3), MIXED)[0] == decoded(method("plain"), MIXED)[0]


def test_by_name_the_cue_is_words(tmp_path):
    with loaded(chatting_model(tmp_path / "little")) as lm:
        settings = Settings(max_tokens=24, ignore_eos=True)
        output = lm.generate("abc", settings, "early_answer:rounds=3,window=2,cue=dada")
        assert "dada" in output.text
        assert lm.generate("abc", settings, "capped_jacobi:size=4,cap=1").trace.forwards["target"] <= 6
        with pytest.raises(BadRequest, match="early_answer cannot keep to a constraint"):
            lm.generate("abc", Settings(max_tokens=8, constraint=regex("[a-z]+")), "early_answer")


@pytest.mark.parametrize("spec", ["capped_jacobi:size=0", "early_answer:rounds=0", "capped_jacobi:start=dice"])
def test_options_are_checked_by_name(spec):
    with pytest.raises(BadRequest, match="expected"):
        requested(spec)


def test_they_say_that_they_are_approximate():
    from unspool.recipes.methods import claim_of

    assert {claim_of("pd-vla"), claim_of("fastcot")} == {HEURISTIC}
    with pytest.raises(BadRequest, match="has to know the tokens"):
        next(EarlyAnswer()((0,), Philox(0), Same(), Stop(most=4)))


def test_a_file_is_copied_from_its_beginning(tmp_path):
    """Aggressive decoding: what is edited is drafted before anything is written."""
    with loaded(chatting_model(tmp_path / "little")) as lm:
        settings = Settings(max_tokens=32, ignore_eos=True)
        expected = tmp_path / "expected.txt"
        expected.write_text("dada dada")
        spec = f"copy:input={expected},depth=16"
        fitted = fit(method(f"{spec} + top_beta"), lm.vocabulary)
        assert fitted.draft.input == lm.vocabulary.encode("dada dada", special=False)
        source = fitted.draft.begin(Prefix.of((0, 1), Same()))
        tree, _ = answered(source.propose(Prefix.of((0, 1), Same()), 16, Philox(0)), None)
        assert tree.tokens(range(len(tree))) == fitted.draft.input[:16]  # nothing is written yet
        copied, plain = lm.generate("abc", settings, spec), lm.generate("abc", settings)
        assert copied.tokens == plain.tokens
        assert copied.trace.drafted
    with pytest.raises(BadRequest, match="only the operator may"):
        requested(spec)
    with pytest.raises(BadRequest, match="cannot be read as text"):
        method(f"copy:input={tmp_path}/none.txt")
    expected.write_bytes(b"\xff")
    with pytest.raises(BadRequest, match="cannot be read as text"):
        method(f"copy:input={expected}")
    expected.write_bytes(b"a" * (LARGEST + 1))
    for long in (expected, "/dev/zero"):  # the second has no end, and no size
        if Path(long).exists():
            with pytest.raises(BadRequest, match=f"is too long; expected at most {LARGEST} bytes"):
                method(f"copy:input={long}")

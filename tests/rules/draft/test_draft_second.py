"""Drafts of a second model: tokens of its own, several models, short contexts, and warps that leave it nothing."""

import math
import random
from itertools import product

import pytest
import torch
from contracts import exercise
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE
from toy import Toy, logits_of

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.claim import LAW, SEED
from unspool.core.errors import BadRequest
from unspool.core.law import Drawn, Law
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import NoRepeatNgram, Same, Temperature
from unspool.models.align import Kinship, align
from unspool.models.vocabulary import Vocabulary
from unspool.proof import prove
from unspool.proof.case import spelling
from unspool.recipes.methods import method as named
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import RSDC, SLEM, Cascade, Chain, Escalate, Lookup, Surest
from unspool.rules.verify import block, rejection, sample_match, traversal
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.draft_bridge.best_effort import BestEffortDraft
from unspool.runtime.draft_bridge.retokenised import RetokenisedDraft
from unspool.runtime.draft_bridge.string_level import Stems, StringLevelDraft
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

PROMPT = (0, 1, 2)


def table(seed: int, vocab: int = 5, order: int = 2) -> Table:
    def weights(text):
        rng = random.Random(repr((seed, text[-order:])))
        return [rng.random() ** 3 for _ in range(vocab)]

    return Table(vocab, weights)


def decode(method, models, prompt=PROMPT, temperature=0.0, most=24, seed=0, warp=None):
    engine = Engine(models)
    job = engine.submit(method, prompt, Philox(seed), warp or Temperature(temperature), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


def law_of(method, models, prompt=(0, 1), most=2, warp=None):
    """The exact law of whole texts."""

    def program(chance):
        engine = Engine(models)
        job = engine.submit(method, prompt, chance, warp or Same(), Stop(most=most))
        engine.run()
        return job.result()

    return Every().law(program)


def vocabulary(words: str, end: str = "<end>", bos: bool = False) -> Vocabulary:
    """Tokens that are words, merged letter by letter, and one control token."""
    tokens = [*words.split(), end]
    merges = [(w[:-1], w[-1]) for w in words.split() if len(w) > 1]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.add_special_tokens([end])
    last = len(tokens) - 1
    pieces = [*(w.encode() for w in words.split()), b""]
    return Vocabulary(tokenizer, pieces, special=[last], eos=[last], bos=last if bos else None, add_bos=bos)


# ---- where the draft model has nothing to say

SPARSE = {  # without its only bigram the draft has no token left, and the target has
    "target": Table(3, lambda text: [3, 2, 1]),
    "draft": Table(3, lambda text: [0, 1, 0] if text[-1] == 0 else [1, 0, 0]),
    "small": Table(3, lambda text: [1, 1, 0]),
}
ASKING = ["chain", "rsd_c", "specinfer", "coupled", "likeliest", "bild", "paced", "sequoia", "dyspec", "rsd_s"]
ASKING += ["cascade", "phrase", "escalate", "surest", "rollback"]


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_ends_where_warps_leave_the_draft_model_no_token(name, temperature):
    warp = NoRepeatNgram(2) | Temperature(temperature)
    models = {name: Table(6, lambda text, t=t: [*t.weights(text), 0, 0, 0]) for name, t in SPARSE.items()}
    models["target"] = Table(6, lambda text: [6, 5, 4, 3, 2, 1])
    text, _ = decode(named(name), models, prompt=(0, 1, 0), most=8, warp=warp)
    assert len(text) == 8


@pytest.mark.parametrize("verify", [sample_match, rejection, block, traversal], ids=lambda v: v.__name__)
@pytest.mark.parametrize("draft", [Chain(2), RSDC((2, 1)), Escalate(0.9, 2)], ids=str)
def test_a_draft_that_ended_so_is_still_exact(draft, verify):
    warp = NoRepeatNgram(2)
    truth = law_of(plain(), SPARSE, (0, 1, 0), 3, warp)
    assert total_variation(law_of(Speculate(draft, verify), SPARSE, (0, 1, 0), 3, warp), truth) < 1e-12


@pytest.mark.parametrize("verify", [sample_match, rejection, block, traversal], ids=lambda v: v.__name__)
def test_a_cascade_whose_middle_model_has_nothing_to_say_is_exact(verify):
    models = {
        "target": Table(4, lambda text: [3, 2, 1, 1]),
        "draft": Table(4, lambda text: [2, 1, 0, 0] if text[-1] == 0 else [1, 0, 0, 0]),
        "small": Table(4, lambda text: [1, 1, 0, 0]),
    }
    warp = NoRepeatNgram(2)
    for prompt in ((1, 0), (0, 0, 1, 0)):  # below the second, one token on, the middle model may not go on
        truth = law_of(plain(), models, prompt, 3, warp)
        for inner in (Chain(2), Lookup(1, 1, 2)):
            method = Speculate(Cascade(inner, verify, 2), rejection)
            assert total_variation(law_of(method, models, prompt, 3, warp), truth) < 1e-12


# ---- where the draft model has no room


def test_a_draft_model_with_a_shorter_context_ends_its_drafts_and_not_the_text():
    own = vocabulary("a b c ab")
    target, short = CachedModel(Toy(room=400)), CachedModel(Toy(room=400, context=9))
    alone = LM("long", target, own).generate(PROMPT, Settings(max_tokens=20, ignore_eos=True))
    for name in ("chain", "rsd_c", "cascade", "bild", "slem", "slrs", "escalate"):
        lm = LM("long", target, own, LM("short", short, own, LM("shorter", CachedModel(Toy(room=9)), own)))
        output = lm.generate(PROMPT, Settings(max_tokens=20, ignore_eos=True), name)
        assert output.tokens == alone.tokens
        late = lm.generate(alone.tokens, Settings(max_tokens=3, ignore_eos=True), name)  # a prompt that is too long
        assert len(late.tokens) == 3
        assert late.trace.drafted == 0
    assert short.slots.in_use == 0


def test_a_full_cache_silences_a_request_and_no_other():
    model = BestEffortDraft(CachedModel(Toy(room=8)))
    first, second = model.open((0, 1, 2)), model.open((3, 4, 3, 4, 3, 4))
    answers = model.score([ScoreRequest(first, NOTHING), ScoreRequest(second, NOTHING)])
    assert [scores.leaf[0].is_empty() for scores in answers] == [False, True]
    first.keep(NOTHING, [ROOT], [4])
    second.keep(NOTHING, [ROOT], [4])
    answers = model.score([ScoreRequest(second, Tree.chain([Drawn(1, Law.point(1))])), ScoreRequest(first, NOTHING)])
    assert answers[0].after[0].is_empty()
    assert torch.equal(answers[1].leaf[0].scores, logits_of((0, 1, 2, 4), 5))


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_quiet_model_keeps_the_contract_of_sessions(data):
    exercise(data, BestEffortDraft(CachedModel(Toy(room=400))), lambda text: logits_of(text, 5))


def test_a_quiet_model_that_is_never_asked_opens_nothing():
    opened = []

    class Watched(CachedModel):
        def open(self, text, owner=""):
            opened.append(text)
            return super().open(text, owner)

    model = BestEffortDraft(Watched(Toy(room=40)))
    session = model.open((0, 1, 2))
    session.keep(NOTHING, [ROOT, ROOT], [1, 2])
    assert not opened
    assert len(model.score([ScoreRequest(session, NOTHING)])[0].leaf) == 2
    assert len(opened) == 1
    session.close()


def test_a_quiet_model_that_is_asked_late_has_read_every_text_as_it_is():
    """Each goes on from its own text, also while nobody has asked."""
    session = BestEffortDraft(CachedModel(Toy(room=40))).open((0, 1))
    session.keep(NOTHING, [ROOT, ROOT], [2, 3])
    tree = Tree.chain([Drawn(4, Law.of([1.0]))])
    session.keep(tree, [~1, ~0, 0], [1, None, None])
    assert session.leaves == [[0, 1, 3, 1], [0, 1, 2], [0, 1, 2, 4]]
    assert [leaf.tokens for leaf in session.opened().leaves] == session.leaves
    session.close()


# ---- a cascade that escalates


def models(vocab=4):
    return {"target": table(1, vocab), "draft": table(2, vocab), "small": table(3, vocab)}


@pytest.mark.parametrize("name", ["draft", "small"])
def test_with_one_model_escalation_is_a_plain_chain(name):
    chain = {**models(), "draft": models()[name]}
    for sure in (0.0, 0.5, 1.0):
        one = Speculate(Escalate(sure, 3, (name,)), rejection)
        for seed in range(5):
            mine = decode(one, models(), temperature=1.0, seed=seed)
            theirs = decode(Speculate(Chain(3), rejection), chain, temperature=1.0, seed=seed)
            assert mine[0] == theirs[0]
            assert mine[1].accepted == theirs[1].accepted


@pytest.mark.parametrize(("sure", "asked", "never"), [(0.0, "small", "draft"), (1.0, "draft", None)])
def test_the_limits_of_sureness_are_one_model_or_the_other(sure, asked, never):
    same = {**models(), "draft": models()[asked]}
    mine, trace = decode(Speculate(Escalate(sure, 3), rejection), models(), temperature=1.0)
    theirs, _ = decode(Speculate(Chain(3), rejection), same, temperature=1.0)
    assert mine == theirs
    assert never is None or trace.forwards.get(never, 0) == 0


def test_the_larger_model_is_asked_only_where_the_smaller_is_not_sure():
    sure = {**models(2), "small": Table(2, lambda text: [9, 1] if len(text) % 2 else [1, 1])}
    _, trace = decode(Speculate(Surest(0.8, 4), budget=4), sure, prompt=(0, 1), most=12)
    assert 0 < trace.forwards["draft"] < trace.forwards["small"]


def test_escalation_holds_what_it_claims_of_three_models():
    assert prove(Speculate(Escalate(0.7, 2), block), LAW, quick=True).ok
    assert prove(Speculate(Surest(0.7, 2)), SEED, quick=True).ok


@pytest.mark.parametrize("spec", ["escalate:sure=1.5", "surest:depth=0", "slem:depth=0", "slrs:depth=0"])
def test_settings_that_make_no_sense_are_refused(spec):
    with pytest.raises(BadRequest, match=r"expected"):
        named(spec)


# ---- text that is retold


LETTERS = " ".join("abcdefghijkl")
PAIRS = " ".join(a + b for a, b in product("abcdefghijkl", repeat=2))


def test_which_way_leads_from_one_vocabulary_to_another_is_found():
    single, both = vocabulary(LETTERS), vocabulary(f"{LETTERS} {PAIRS}", end="<eos>")
    assert align(both, both).kinship is Kinship.SAME
    assert align(both, single).kinship is Kinship.SHARED
    found = align(single, both)
    assert found.kinship is Kinship.STRINGS
    assert str(found) == (
        "different tokens, hardly any spelt the same: only text passes between them "
        "(12 shared: 92% of the target's, 8% of the draft's)"
    )
    other = vocabulary(" ".join("mnopqrstuvwxyz"), end="<eos>")
    with pytest.raises(BadRequest, match=r"only 0.0% of the draft's 15 tokens .* and only 0% of those can be written"):
        align(single, other)


def test_strangers_in_tokens_draft_by_strings():
    single, both = vocabulary(LETTERS), vocabulary(f"{LETTERS} {PAIRS}", end="<eos>")
    lm = LM("letters", table(1, 13), single, LM("pairs", table(2, 157), both))
    plainly = LM("letters", lm.model, single).generate((0, 1), Settings(max_tokens=8, ignore_eos=True))
    for name in ("chain", "rsd_c", "likeliest", "slem", "slrs"):
        output = lm.generate((0, 1), Settings(max_tokens=8, ignore_eos=True), name)
        assert output.tokens == plainly.tokens
        assert output.trace.drafted > 0


def test_text_is_cut_together_with_what_stands_before_it():
    found = align(vocabulary("a b c ab bc abc"), vocabulary("a b c ca"))
    assert found.retell((0,), (1, 2)) == (4,)  # after "a": "bc", not the "abc" that no longer can be
    assert found.retell((2,), (0, 1, 2)) == (5,)
    assert found.retell((2,), (0, 1, 4, 2)) == (3, 6)  # up to <end>
    assert found.retell((6,), (3, 1)) == (2, 3)  # "ca" "b" → "c" "ab"
    assert found.follow((2,), (0,)) == (3,)  # "c", then "a": cut anew as "ca"
    assert found.follow((2,), (6, 0)) == (2, 4, 0)  # but not over a control token
    assert found.follow(found.read((2, 0, 5)), ()) == (3, 0, 1, 2)


def test_of_equal_tokens_the_one_that_is_really_written_is_drafted():
    """Vocabularies with bytes to fall back on have every letter twice, and write only one of the two."""
    twice = Vocabulary(Tokenizer(BPE({"a": 2, "b": 3}, [])), [b"a", b"b", b"a", b"b"], special=[], eos=[])
    once = vocabulary("b a")
    assert align(twice, once).shared == {2: 1, 3: 0}
    assert align(once, twice).shared == {0: 3, 1: 2}
    assert align(twice, once).spell(0) == (1,)
    model = StringLevelDraft(Table(3, lambda text: [1, 3, 0]), align(twice, once))
    (scores,) = model.score([ScoreRequest(model.open((2,)), NOTHING)])
    assert scores.leaf[0].p.tolist() == pytest.approx([0, 0, 0.75, 0.25])


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 3), max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_byte_is_lost_on_the_way(text, written):
    found = align(vocabulary("a b c ab bc abc"), vocabulary("a b c ca"))
    told = found.retell(text, written)
    assert found.target.decode(told) == found.draft.decode(written)
    half = len(text) // 2
    inner = found.follow(found.read(text[:half]), text[half:]) if half else found.read(text)
    assert found.draft.decode(inner) == found.target.decode(text)


def test_a_character_in_pieces_is_put_together_again():
    snow = "☃".encode()
    letters = {"a": 0, "☃": 1}
    whole = Vocabulary(Tokenizer(BPE(letters, [])), [b"a", snow], special=[], eos=[])
    pieces = [b"a", *(bytes([x]) for x in snow), snow]
    bytewise = Vocabulary(Tokenizer(BPE({"a": 0, "b": 1, "c": 2, "☃": 4}, [])), pieces, special=[], eos=[])
    found = align(bytewise, whole)
    assert found.retell((0,), (1, 0)) == (4, 0)
    back = align(whole, bytewise)
    assert back.retell((0,), (0, 1, 2)) == (0,)  # the rest of the character is still to come
    assert back.retell((0,), (0, 1, 2, 3)) == (0, 1)
    assert back.follow((0, 1, 2), ()) == (0, 1, 2)
    assert found.follow((0,), (1, 2)) == (0,)  # the draft has no tokens for parts


def test_prose_writes_whole_words_at_once_and_is_told_what_stood():
    """The target spells every word as one token, the draft letter by letter: one draft forward per letter."""
    found = align(vocabulary("a b ab abb"), vocabulary("a b"))
    loop = Table(5, lambda text: [float(x == (3 if text[-1] == 2 else 2)) for x in range(5)])  # ab abb ab abb …
    spelt = Table(3, lambda text: [float(x == (0, 1, 0, 1, 1)[len(text) % 5]) for x in range(3)])
    models = {"target": loop, "slem": RetokenisedDraft(spelt, found)}
    text, trace = decode(Speculate(SLEM(5), budget=8), models, prompt=(2, 3), most=20)
    assert text == (2, 3) * 10
    assert trace.accepted_tokens == 20 - trace.forwards["target"]
    assert trace.forwards["target"] <= 8


def test_a_text_that_was_forked_cannot_be_retold():
    model = RetokenisedDraft(CachedModel(Toy(vocab=3, room=40)), spelling(3))
    session = model.open((0, 1))
    session.keep(NOTHING, [ROOT, ROOT], [0, 1])
    with pytest.raises(BadRequest, match="forked"):
        model.score([ScoreRequest(session, NOTHING)])
    session.keep(NOTHING, [~1], [None])
    model.score([ScoreRequest(session, NOTHING)])
    session.close()
    assert model.model.slots.in_use == 0


# ---- strings


def psi_of(outer, inner, law, looks=9):
    """ψ by brute force: all texts of `looks` inner tokens, each cut to the longest outer token it begins with."""
    psi = [0.0] * len(outer)
    for tokens in product(range(len(inner)), repeat=looks):
        mass = math.prod(law(tokens[:i])[x] for i, x in enumerate(tokens))
        string = b"".join(inner[x] for x in tokens)
        psi[max((t for t, p in enumerate(outer) if string.startswith(p)), key=lambda t: len(outer[t]))] += mass
    return psi


def test_psi_of_a_small_example():
    inner = Table(3, lambda text: [1, 6, 3] if text[-1] == 0 else [5, 2, 3])
    model = StringLevelDraft(inner, spelling(3))  # outer a, b, ab; inner a, b, ba
    (scores,) = model.score([ScoreRequest(model.open((1,)), NOTHING)])
    assert scores.leaf[0].p.tolist() == pytest.approx([0.05, 0.5, 0.45])  # ab: "a" and then "b" or "ba"
    (scores,) = StringLevelDraft(inner, spelling(3), looks=1).score([ScoreRequest(model.open((1,)), NOTHING)])
    assert scores.leaf[0].p.tolist() == pytest.approx([0.5, 0.5, 0])


@given(seed=st.integers(0, 999))
@settings(max_examples=20, deadline=None)
def test_psi_is_that_of_all_ways_to_write_if_every_branch_is_followed(seed):
    rng = random.Random(seed)
    words = [bytes(w) for size in (2, 3) for w in product(b"ab", repeat=size)]
    outer, inner = [b"a", b"b", *rng.sample(words, 4)], [b"a", b"b", *rng.sample(words, 2)]
    own = table(seed, vocab=len(inner), order=3)

    class Spelt:
        size, shared, ends, strings = len(outer), {0: 0}, {}, (outer, inner)

        def read(self, text):
            return (0,)

    model = StringLevelDraft(own, Spelt(), looks=4, width=99)
    (scores,) = model.score([ScoreRequest(model.open((0,)), NOTHING)])
    truth = psi_of(outer, inner, lambda tokens: own.law((0, *tokens)).p.tolist(), looks=4)
    assert scores.leaf[0].p.tolist() == pytest.approx(truth)


def test_without_a_second_look_equal_vocabularies_give_the_model_itself():
    same = vocabulary("a b ab")
    own = table(5, vocab=4)
    model = StringLevelDraft(own, align(same, same), looks=1)
    (scores,) = model.score([ScoreRequest(model.open((0, 2)), NOTHING)])
    assert scores.leaf[0].p.tolist() == pytest.approx(own.law((0, 2)).p.tolist())


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_covering_model_keeps_the_contract_of_sessions(data):
    spelt = spelling(3)

    class Spelling:  # token by token: a real prompt may be cut otherwise than what is added to it later
        size, shared, strings, ends, spell = 3, spelt.shared, spelt.strings, spelt.ends, spelt.spell

        def read(self, text):
            return tuple(x for token in text for x in spelt.spell(token))

    def covering():
        return StringLevelDraft(CachedModel(Toy(vocab=3, room=900)), Spelling())

    def scratch(text):
        fresh = covering()
        return fresh.score([ScoreRequest(fresh.open(text), NOTHING)])[0].leaf[0].scores

    exercise(data, covering(), scratch, tolerance=1e-9)


def test_stems_find_the_longest_token_and_what_may_still_come():
    outer, inner = [b"", b"a", b"ab", b"abc", b"\xff", b"\xff\xff"], [b"a", b"b", b"bcd", b"c", b"\xff", b""]
    stems = Stems(outer, inner, {5: 0})
    start = stems.reach(b"")
    assert dict(zip(start.inner.tolist(), start.outer.tolist(), strict=True)) == {5: 0, 0: 1, 4: 4}
    assert sorted(start.inside.tolist()) == [0, 4]
    after = stems.reach(b"a")
    assert dict(zip(after.inner.tolist(), after.outer.tolist(), strict=True)) == {1: 2, 2: 3}
    assert after.inside.tolist() == [1]
    assert stems.longest(b"abx") == 2
    assert stems.longest(b"x") is None
    assert stems.reach(b"\xff").outer.tolist() == [5]


def test_drafts_by_strings_are_exact_within_any_bounds():
    target, own = table(1, vocab=3), table(2, vocab=3)
    truth = law_of(plain(), {"target": target}, most=3)
    for looks, width in ((1, 1), (2, 1), (4, 9)):
        models = {"target": target, "slrs": StringLevelDraft(own, spelling(3), looks, width)}
        assert total_variation(law_of(named("slrs:depth=2"), models, most=3), truth) < 1e-12

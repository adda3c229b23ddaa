"""Drafts that the target makes itself: Jacobi windows, lookahead, copies, phrases; and drafts of drafts."""

import math
import random
from itertools import pairwise

import pytest
import torch
from contracts import exercise
from hypothesis import given, settings
from hypothesis import strategies as st
from prompts import PROMPTS
from tokenizers import Tokenizer
from tokenizers.models import BPE
from toy import Toy, logits_of

import unspool
from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.asks import GiveWay, Scores
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.claim import SEED
from unspool.core.errors import BadRequest
from unspool.core.law import Drawn, Law
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.warp import Prefix, Same, Temperature
from unspool.models.address import home
from unspool.models.align import Kinship, align
from unspool.models.vocabulary import Vocabulary
from unspool.proof import prove
from unspool.recipes.methods import method as named
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import (
    Cascade,
    Chain,
    Copy,
    Either,
    Jacobi,
    JacobiBlocks,
    Lookahead,
    Lookup,
    Merge,
    NgramPool,
    Nothing,
    Phrase,
    Slide,
)
from unspool.rules.draft.jacobi import last_again
from unspool.rules.draft.ngram_pool import TreeBuilder
from unspool.rules.verify import rejection
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.draft_bridge.shared_vocabulary import SharedVocabularyDraft
from unspool.runtime.engine.engine import Engine

PROMPT = (0, 1, 2)


def table(seed: int, vocab: int = 5, order: int = 2) -> Table:
    """A model that looks back `order` tokens."""

    def weights(text):
        rng = random.Random(repr((seed, text[-order:])))
        return [rng.random() ** 3 for _ in range(vocab)]

    return Table(vocab, weights)


def decode(method, models, prompt=PROMPT, temperature=0.0, most=24, seed=0):
    models = models if isinstance(models, dict) else {"target": models}
    engine = Engine(models)
    job = engine.submit(method, prompt, Philox(seed), Temperature(temperature), Stop(most=most))
    engine.run()
    return job.result().tokens, job.trace


def law(method, models, prompt=(0, 1), most=2):
    """The exact law of whole texts."""

    def program(chance):
        engine = Engine(models)
        job = engine.submit(method, prompt, chance, Same(), Stop(most=most))
        engine.run()
        return job.result()

    return Every().law(program)


def after(text, warp=None) -> Prefix:
    return Prefix.of(tuple(text), warp or Same())


def proposed(source, prefix, budget=64):
    """The tree, of a source that asks for nothing and only gives way."""
    found = []

    def asked():
        found.append((yield from source.propose(prefix, budget, Philox(0))))

    assert all(ask == GiveWay() for ask in asked())
    return found[0]


def scores_of(model: Table, text, tree: Tree) -> Scores:
    laws = [model.law(tuple(text) + tree.tokens(tree.path(node))) for node in range(len(tree))]
    return Scores(laws, [model.law(tuple(text))])


# ---- Jacobi

FRAMES = [Slide(1), Slide(6), JacobiBlocks(1), JacobiBlocks(5), JacobiBlocks(24)]


@given(seed=st.integers(0, 999), order=st.integers(1, 3), frame=st.sampled_from(FRAMES), hot=st.booleans())
@settings(max_examples=60, deadline=None)
def test_jacobi_gives_the_text_of_the_seed_and_never_needs_more_forwards_than_plain(seed, order, frame, hot):
    model, temperature = table(seed, order=order), 1.0 if hot else 0.0
    slow, spent = decode(plain(), model, temperature=temperature, seed=seed)
    for fill in (last_again, Jacobi().fill):
        fast, trace = decode(Speculate(Jacobi(frame, fill), budget=24), model, temperature=temperature, seed=seed)
        assert fast == slow
        assert trace.forwards["target"] <= spent.forwards["target"]


def test_no_window_and_blocks_of_one_are_plain_decoding():
    for frame in (Slide(0), JacobiBlocks(1)):
        _, trace = decode(Speculate(Jacobi(frame)), table(3))
        assert trace.drafted == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_chunk_that_starts_at_the_fixed_point_takes_one_forward(temperature):
    """A warm start from the last chunk, as in PD-VLA: a repeated input is done at once."""
    model = table(5, order=3)
    text, _ = decode(plain(), model, temperature=temperature, most=12)

    def last_chunk(so_far, count):
        return text[len(so_far) - len(PROMPT) :][:count]

    again, trace = decode(
        Speculate(Jacobi(JacobiBlocks(12), last_chunk), budget=12), model, temperature=temperature, most=12
    )
    assert again == text
    assert trace.forwards["target"] == 1


def test_guesses_are_the_targets_own_and_move_on_with_the_text():
    model = table(7, order=4)
    source = Jacobi(Slide(4), last_again).begin(after(PROMPT))
    tree = proposed(source, after(PROMPT))
    assert tree.tokens(range(4)) == (2, 2, 2, 2)
    greedy = [law.best for law in scores_of(model, PROMPT, tree).after]
    source = Jacobi(Slide(4), last_again).begin(after(PROMPT, Temperature(0.0)))
    proposed(source, after(PROMPT, Temperature(0.0)))
    source.learn(after((*PROMPT, 2, 4), Temperature(0.0)), tree, scores_of(model, PROMPT, tree))  # one accepted, then 4
    again = proposed(source, after((*PROMPT, 2, 4), Temperature(0.0)))
    assert again.tokens(range(3)) == tuple(greedy[1:])  # after the 2nd, 3rd and 4th guess
    assert again.tokens([3]) == (greedy[3],)  # filled with the last guess


def test_guesses_that_others_drafted_away_stay():
    source = Jacobi(Slide(3), lambda text, count: (1, 2, 3)[:count]).begin(after(PROMPT))
    proposed(source, after(PROMPT))
    other = Tree.chain([Drawn(4, Law.point(4))])
    source.learn(after((*PROMPT, 0)), other, scores_of(table(1), PROMPT, other))
    again = proposed(source, after((*PROMPT, 0)))
    assert again.tokens(range(3)) == (2, 3, 1)  # and the last is new


@given(seed=st.integers(0, 99))
@settings(max_examples=20, deadline=None)
def test_settling_tells_when_each_token_stood(seed):
    found: list = []
    text, trace = decode(Speculate(Jacobi(JacobiBlocks(8), last_again, found.append), budget=8), table(seed, order=1))
    settled = found[0].settled(text)
    assert len(found) == 1
    assert [s.certain for s in settled] == sorted(s.certain for s in settled)
    assert settled[-1].certain == trace.rounds - 1
    assert all(0 <= s.stood <= s.certain + 1 for s in settled)
    for s, position in zip(settled, range(len(text)), strict=True):
        done, guesses = found[0].rounds[s.certain]
        assert (guesses[position - done : position - done + 1] == (text[position],)) == (s.stood <= s.certain)


# ---- lookahead


def test_the_window_is_a_chain_with_a_branch_per_column_and_its_columns_are_trajectories():
    model, look = table(2, order=9), Lookahead(window=3, ngram=4, guesses=2)
    source, text = look.begin(after(PROMPT)), PROMPT
    history = []
    for _ in range(6):
        tree = proposed(source, after(text))
        assert len(tree) <= look.nodes
        columns = source.columns
        row = [c[0] for c in columns]
        scores = scores_of(model, text, tree)
        new = [model.law(text + tuple(row[: i + 1]) + column[1:]).best for i, column in enumerate(columns)]
        text = (*text, scores.leaf[0].best)
        source.learn(after(text), tree, scores)
        history.append((columns, new))
    full = [h for h in history if len(h[0][0]) == look.ngram - 1]
    assert len(full) == 6 - (look.ngram - 2)
    assert all(len(columns) == look.window for columns, _ in full)
    for (before, new), (columns, _) in pairwise(full):
        assert columns == [(*c[1:], x) for c, x in zip(before, new, strict=True)]
    phrases = [p for token in range(5) for p in source.pool.after(token)]
    assert phrases
    assert all(len(p) == look.ngram - 1 for p in phrases)


def test_n_grams_of_the_last_token_are_drafted_and_a_whole_match_brings_the_token_after_it():
    loop = Table(5, lambda text: [float(x == (text[-1] + 1) % 5) for x in range(5)])
    text, trace = decode(named("lookahead:window=2,ngram=4,guesses=2"), loop, most=25)
    assert text == tuple((3 + i) % 5 for i in range(25))
    assert max(trace.accepted) >= 3
    assert trace.forwards["target"] <= 12


# ---- copying


@pytest.mark.parametrize(("edit", "forwards"), [({}, 2), ({3: 40}, 4), ({0: 40}, 3)])
def test_copying_finds_its_way_back_after_an_edit(edit, forwards):
    source = tuple(range(10, 26))
    answer = tuple(edit.get(i, x) for i, x in enumerate(source))
    prompt = (*source, 1)
    echo = Table(50, lambda text: [float(x == (*answer, 0)[len(text) - len(prompt)]) for x in range(50)])
    for copy, most in ((Copy(16, 3, source), forwards), (Copy(16, 3), forwards + 1)):
        text, trace = decode(Speculate(copy, budget=16), echo, prompt, most=17)
        assert text == (*answer, 0)
        assert trace.forwards["target"] <= most


def test_copying_needs_a_match_that_stands_once():
    source = Copy(4, 2).begin(after((5, 6, 5, 7, 9)))
    assert len(proposed(source, after((5, 6, 5, 7, 9, 5)))) == 0  # 5 stands twice
    source.learn(after((5, 6, 5, 7, 9, 5)), Tree(), scores_of(table(0, 10), (5,), Tree()))
    tree = proposed(source, after((5, 6, 5, 7, 9, 5, 6)))  # but 6 stands once
    assert tree.tokens(range(len(tree))) == (5, 7, 9)


# ---- phrases


def test_a_phrase_is_what_the_target_made_of_a_rejected_draft():
    up = Table(9, lambda text: [float(x == (text[-1] + 1) % 9) for x in range(9)])
    source = Phrase(Nothing(), phrases=2, length=2).begin(after((0,)))
    draft = Tree.chain([Drawn(x, Law.point(x)) for x in (5, 6, 8)])
    source.learn(after((0, 1)), draft, scores_of(up, (0,), draft))
    assert source.pool.after(5) == [(6, 7)]
    assert source.pool.after(6) == [(7,)]
    tree = proposed(source, after((0, 1, 5)))
    assert tree.tokens(range(len(tree))) == (6, 7)


def test_a_pool_is_bounded_and_newest_first():
    pool = NgramPool(length=2, each=2, most=3)
    for token in range(9):
        for i in range(4):
            pool.add(token, (i, i, i))
    assert len(pool) == 3
    assert pool.after(8) == [(3, 3), (2, 2)]
    assert pool.after(0) == []
    pool.add(8, (2,))
    pool.add(8, (2, 5))
    assert pool.after(8) == [(2, 5), (3, 3)]


def test_requests_share_a_pool_only_if_they_are_given_one():
    model, pool = table(4, order=3), NgramPool(4, 3)
    own, shared = Speculate(Phrase(Nothing())), Speculate(Phrase(Nothing(), pool=pool))
    first, second = decode(own, model)[1], decode(own, model)[1]
    assert first.forwards == second.forwards
    assert decode(shared, model)[1].forwards["target"] > decode(shared, model)[1].forwards["target"]


def test_equal_guesses_are_one_node():
    trie = TreeBuilder(budget=4)
    assert trie.add((1, 2)) == [0, 1]
    assert trie.add((1, 3, 4, 5)) == [0, 2, 3]  # the budget is spent
    assert trie.tree().parent == (ROOT, 0, 0, 2)


# ---- cascades


def test_a_cascade_writes_the_draft_models_text_in_fewer_of_its_forwards():
    loop = Table(5, lambda text: [float(x == (text[-1] + 1) % 5) for x in range(5)])
    models = {"target": loop, "draft": loop, "small": loop}
    for inner in (Lookup(2, 1, 4), Chain(3)):
        method = Speculate(Cascade(inner, rejection, 8), rejection, budget=8)
        text, trace = decode(method, models, prompt=(0, 1, 2, 3, 4, 0), most=27)
        assert text == tuple((1 + i) % 5 for i in range(27))
        assert trace.forwards["target"] == 3
        assert trace.forwards["draft"] <= 8


def test_one_model_thrice_accepts_everything():
    model = table(6)
    method = Speculate(Cascade(Chain(2), rejection, 4), rejection, budget=4)
    _, trace = decode(method, {"target": model, "draft": model, "small": model}, temperature=1.0, most=20)
    assert trace.draft_acceptance_rate == 1.0


@pytest.mark.parametrize("inner", [Nothing(), Chain(1)])
def test_several_inner_rounds_keep_their_noise_apart(inner):
    models = {"target": table(1, vocab=2), "draft": table(2, vocab=2), "small": table(3, vocab=2)}
    method = Speculate(Cascade(inner, rejection, 2), rejection, budget=2)
    assert total_variation(law(method, models, most=3), law(plain(), models, most=3)) < 1e-12


def test_a_cascade_in_a_cascade_is_refused():
    model = table(6)
    method = Speculate(Cascade(Cascade(Chain(1), rejection, 1), rejection, 1), rejection)
    with pytest.raises(BadRequest, match="cascade inside a cascade"):
        decode(method, {"target": model, "draft": model, "small": model})


# ---- all of them

ALONE = ["jacobi", "blocks", "lookahead", "copy"]


def test_joined_with_others_they_stay_exact():
    pair = Merge(Jacobi(Slide(2)), Lookahead(1, 2, 1))
    for draft in (Either(Lookup(1, 1, 1), Jacobi(Slide(2))), pair, Phrase(Jacobi(Slide(1)), 1, 1)):
        proof = prove(Speculate(draft, budget=3), SEED, quick=True)
        assert proof.ok, proof.counterexample


@pytest.mark.parametrize("name", [*ALONE, "phrase", "cascade"])
def test_nothing_leaks_from_one_request_to_another(name):
    method, models = named(name), {"target": table(8, order=3), "draft": table(9, order=3)}

    def run(prompts):
        engine = Engine(models)
        jobs = [engine.submit(method, p, Philox(1), Temperature(0.7), Stop(most=16)) for p in prompts]
        engine.run()
        return [(job.result(), job.trace.drafted, job.trace.accepted) for job in jobs]

    prompts = [(0, 1, 2, 0, 1), (3, 3, 1), (0, 1, 2, 0, 1)]
    together = run(prompts)
    assert together[0] == together[2]
    assert together == [run([p])[0] for p in prompts]


@pytest.mark.parametrize(
    "spec",
    ["jacobi:window=-1", "blocks:size=0", "lookahead:ngram=1", "copy:depth=0", "phrase:length=0", "cascade:depth=0"],
)
def test_settings_that_make_no_sense_are_refused(spec):
    with pytest.raises(BadRequest, match="; expected"):
        named(spec)


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("jacobi", 0),
        ("copy", 11),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("blocks", 3), ("lookahead", 9))),
    ],
)
def test_the_default_models_greedy_text_is_that_of_plain_decoding(smollm2, name, prompt):
    same_text(smollm2, name, prompt)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "prompt"), [("phrase", 9), ("cascade", 8)])
def test_the_default_model_drafting_for_itself_gives_its_greedy_text(smollm2, name, prompt):
    both = LM("twice", smollm2.model, smollm2.vocabulary, smollm2)
    trace = same_text(both, name, prompt)
    assert trace.forwards["target"] < trace.tokens


def same_text(lm, name, prompt):
    chat, options = [{"role": "user", "content": PROMPTS[prompt]}], Settings(max_tokens=24)
    slow, fast = lm.generate(chat, options), lm.generate(chat, options, name)
    found = divergence(lm.encode(chat), fast.tokens, slow.tokens, passes_of(lm.model))
    assert found is None or found.near_tie, str(found)
    return fast.trace


# ---- drafts in other tokens


class Spelt:
    """Outer tokens 0..5: three are inner tokens, one is spelt with two of them, one with none, one with half of 3."""

    size = 6
    shared = {0: 3, 1: 2, 2: 1}  # noqa: RUF012
    words = {3: (4, 4), 4: (), 5: (4,)}  # noqa: RUF012

    def spell(self, token):
        return (self.shared[token],) if token in self.shared else self.words[token]

    def read(self, text):
        return (0, *(x for token in text for x in self.spell(token)))


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_translated_model_keeps_the_contract_of_sessions(data):
    spelling = Spelt()

    def scratch(text):
        inner = logits_of(spelling.read(text), 5)
        return torch.tensor([float(inner[spelling.shared[x]]) if x in spelling.shared else -math.inf for x in range(6)])

    class Exactly(SharedVocabularyDraft):  # −∞ − −∞ is no difference
        def widen(self, scores):
            return super().widen(scores).clamp_min(-1e9)

    model = Exactly(CachedModel(Toy(vocab=5, room=400)), spelling)
    exercise(data, model, lambda text: scratch(text).double().clamp_min(-1e9), tolerance=1e-6)


def test_drafts_in_other_tokens_are_exact():
    inner = table(3, vocab=5)
    models = {"target": table(1, vocab=6), "draft": SharedVocabularyDraft(inner, Spelt())}

    assert total_variation(law(named("chain:depth=2"), models), law(plain(), models)) < 1e-12


def vocabulary(words: str, end: str = "<end>", pad: int = 0) -> Vocabulary:
    """Tokens that are words of one or two letters, and one control token."""
    tokens = [*words.split(), end]
    merges = [(w[0], w[1]) for w in words.split() if len(w) == 2]
    tokenizer = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.add_special_tokens([end])
    pieces = [*(w.encode() for w in words.split()), b"", *[b""] * pad]
    return Vocabulary(tokenizer, pieces, special=[len(tokens) - 1], eos=[len(tokens) - 1])


def test_vocabularies_are_told_apart():
    own = vocabulary("a b c ab")
    assert align(own, vocabulary("a b c ab")).kinship is Kinship.SAME
    padded = align(own, vocabulary("a b c ab", pad=3))
    assert padded.kinship is Kinship.PADDED
    assert padded.read((3, 4)) == (3, 4)
    found = align(own, vocabulary("c b a bc"))
    assert found.kinship is Kinship.SHARED
    assert found.shared == {0: 2, 1: 1, 2: 0, 4: 4}
    assert found.coverage == 4 / 5
    assert found.spell(3) == (2, 1)  # "ab", letter by letter
    assert found.read((0, 1, 2, 4, 3)) == (2, 3, 4, 2, 1)  # "a" "bc", as the draft cuts it; <end>; "ab"
    assert str(found) == (
        "different tokens, some of which are spelt the same (4 shared: 80% of the target's, 80% of the draft's)"
    )
    assert align(own, vocabulary("a b c", end="<eos>")).spell(4) == ()


def test_strangers_are_refused_in_words():
    latin, greek = vocabulary("a b c d e", end="<end>"), vocabulary("α β γ δ ε", end="<τέλος>")
    with pytest.raises(BadRequest, match=r"greek cannot draft for latin: only 0.0% of the draft's 6 tokens"):
        LM("latin", table(0, 6), latin, LM("greek", table(0, 6), greek))


def test_a_draft_of_other_tokens_or_of_another_size_drafts():
    own, cross, longer = vocabulary("a b c ab"), vocabulary("c b a bc"), vocabulary("a b c ab", pad=3)
    model = table(1, vocab=5)
    plainly = LM("own", model, own).generate((0, 1), Settings(max_tokens=8, ignore_eos=True)).tokens
    for draft in (LM("cross", table(2, vocab=5), cross), LM("longer", table(2, vocab=8), longer)):
        lm = LM("own", model, own, LM(draft.name, draft.model, draft.vocabulary, draft))
        assert set(lm.models()) == {"target", "draft", "small", "slem", "slrs"}
        for method in ("chain", "rsd_c", "cascade", "escalate", "slem", "slrs"):
            assert lm.generate((0, 1), Settings(max_tokens=8, ignore_eos=True), method).tokens == plainly


ACROSS = (
    "Write a Python function that reverses a list.",
    "What is the capital of France, and what is it known for?",
    "Translate into German: The weather is nice today, and we are going to the park.",
)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_the_default_model_drafts_for_another_family():
    """Only where the larger model has been pulled: a gigabyte is not fetched for a test."""
    file = next(iter((home() / "models" / "qwen2.5-coder-1.5b").glob("*.gguf")), None)
    if file is None:
        pytest.skip("there is no .gguf of Qwen2.5-Coder-1.5B in models/qwen2.5-coder-1.5b of the cache folder")
    lm = unspool.load(file, device="cpu", draft=unspool.load("smollm2", device="cpu"))
    assert lm.alignments["draft"].coverage > 0.5
    for prompt in ACROSS:
        chat, short = [{"role": "user", "content": prompt}], Settings(max_tokens=32)
        slow = lm.generate(chat, short)
        for name in ("chain", "slem", "slrs"):
            fast = lm.generate(chat, short, name)
            print(f"{name}: {fast.trace}")
            found = divergence(lm.encode(chat), fast.tokens, slow.tokens, passes_of(lm.model))
            assert found is None or found.near_tie, str(found)
            assert fast.trace.forwards["target"] < fast.trace.tokens


def test_the_pool_drafts_for_the_draft_model_too():
    """Ouroboros: where the pool knows how a text goes on, the draft model takes fewer forwards for the same draft."""
    count = Table(5, lambda text: [10.0 if x == (text[-1] + 1) % 5 else 0.1 for x in range(5)])
    models = {"target": count, "draft": count}
    found = {}
    for by in ("chain", "pool"):
        engine = Engine(models)
        made = named(f"phrase:by={by},depth=4,length=4")
        job = engine.submit(made, (0, 1, 2, 3, 4, 0, 1, 2, 3, 4), Philox(0), Temperature(0.0), Stop(most=40))
        engine.run()
        found[by] = job.result().tokens, job.trace
    assert found["chain"][0] == found["pool"][0]
    assert found["pool"][1].forwards["draft"] < 0.5 * found["chain"][1].forwards["draft"]
    assert found["pool"][1].tokens_per_forward >= found["chain"][1].tokens_per_forward

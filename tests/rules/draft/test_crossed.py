"""Every drafter inside every combinator: the text stays plain decoding's, and what the part can do the whole can."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from selection import crossed

from unspool.api.origin import Watched
from unspool.core.asks import Check, Price, Write
from unspool.core.chance import Philox
from unspool.core.claim import LAW, SEED
from unspool.core.cost import FREE, Cost
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.verifier import decides_token_by_token
from unspool.core.warp import Same
from unspool.core.warp.warp import Prefix
from unspool.loops.drafter import begun
from unspool.proof import prove
from unspool.proof.case import Case
from unspool.proof.shaping import DEAD_END
from unspool.recipes.methods import entries
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import (
    Auto,
    BigramRecycling,
    Cascade,
    Chain,
    Coupled,
    DeviceFirst,
    Draft,
    Either,
    Heads,
    Lookup,
    Masks,
    Merge,
    Nothing,
    OnDevice,
    Phrase,
    Prefilled,
    Source,
    SpecInfer,
    Stand,
    Tetris,
)
from unspool.rules.draft.composite import CompositeDraft
from unspool.rules.verify import block, kseq, race, rejection, sample_match, traversal, zeroing
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")


def _called(draft):
    """The same name in every process: without the addresses of functions."""
    return re.sub(r" at 0x\w+", "", str(draft))[:60]


def _drafters():
    """One small drafter of every registered rule, with the verifier it is proved under."""
    for name, entry in entries().items():
        trials = [trial for trial in entry.trials(entry.rule) if isinstance(trial, Speculate)]
        if entry.family == "draft":
            assert trials, f"{name} has no trial that drafts"
            yield name, trials[-1]


DRAFTERS = {
    **dict(_drafters()),
    "nothing": Speculate(Nothing()),
    "prefilled recall": Speculate(Prefilled(BigramRecycling())),
}
BESIDE = Lookup(1, 1, 1)

COMBINATORS = {
    "either": Either,
    "either, second": lambda draft: Either(BESIDE, draft),
    "merge": Merge,
    "merge with another": lambda draft: Merge(BESIDE, draft),
    "watched": lambda draft: Watched(draft, lambda prefix, tree: None),
    "prefilled": Prefilled,
    "masks": lambda draft: Masks(1, (draft,)),
    "phrase": lambda draft: Phrase(draft, phrases=1, length=2),
    "tetris": lambda draft: Tetris(draft, 3),
    "device first": DeviceFirst,
    "cascade": lambda draft: Cascade(draft, sample_match, 2),
    "nested": lambda draft: Either(
        Merge(Watched(Phrase(draft, 1, 1), lambda prefix, tree: None), BigramRecycling()), BESIDE
    ),
}
WARPS = ("none", "temperature 0.6", "no bigram twice", DEAD_END)


def test_no_combinator_is_left_out():
    assert {Either, Merge, Watched, Prefilled, Masks, Phrase, Tetris, DeviceFirst} >= {
        made for made in CompositeDraft.__subclasses__() if made.__module__.startswith("unspool.")
    }


@cache
def world(warp):
    """A case, and an engine with its models."""
    case = case_of(warp)
    return case, Engine(case.models(case.tables()))


def case_of(warp):
    target = (3, 1, 2, 1), (1, 4, 1, 1), (2, 2, 1, 5), (1, 1, 6, 1), (4, 1, 1, 2)
    return Case(4, target, target[1:4], (0, 1, 2, 0, 1), warp, None, None, 8)


def written(method, warp, seed):
    """The text of a method with this seed; None where no token is left."""
    case, engine = world(warp)
    job = engine.submit(method, case.prompt, Philox(seed), case.shaping(), case.stop())
    engine.run()
    try:
        return job.result()
    except EmptyLaw:
        return None


TRUTH = {(warp, seed): written(plain(), warp, seed) for warp in WARPS for seed in ((0, 1) if warp == "none" else (2,))}


def refused(draft, combinator):
    """Why these do not go together, as a part of the message, "" if they do."""
    if combinator == "prefilled" and not begun(draft, Prefix.of((0, 1), Same())).listens:
        return "has no use for the laws of the prompt"
    return ""


def joined(name, combinator):
    """A drafter in a combinator; a test with two that do not go together ends with the refusal."""
    draft = DRAFTERS[name].draft
    whole = COMBINATORS[combinator](draft)
    if why := refused(draft, combinator):
        with pytest.raises(BadRequest, match=why):
            written(Speculate(whole), "none", 0)
        return None
    return whole


# ---- texts


@pytest.mark.parametrize(("name", "combinator"), crossed(DRAFTERS, COMBINATORS, quick=3))
def test_the_text_is_plain_decodings(name, combinator):
    """Under the walk, whatever is drafted; under other rules some text comes out, unless no token is left."""
    whole = joined(name, combinator)
    if whole is None:
        return
    if combinator == "cascade" and isinstance(DRAFTERS[name].draft, (Cascade, Phrase)):  # whose pool is one
        with pytest.raises(BadRequest, match="cascade inside a cascade"):
            written(Speculate(whole), "none", 0)
        return
    for (warp, seed), truth in TRUTH.items():
        assert written(Speculate(whole, budget=6), warp, seed) == truth, (warp, seed)
    for verify in {DRAFTERS[name].verify, rejection, race, block, traversal} - {sample_match}:
        if whole.reuses_noise and not decides_token_by_token(verify):
            with pytest.raises(BadRequest, match="would not be exact"):
                Speculate(whole, verify)
            continue
        for warp in ("none", "no bigram twice")[: 1 + (verify is rejection)]:
            found = written(Speculate(whole, verify, budget=6), warp, 0)
            assert found is None or set(found.tokens) <= {0, 1, 2, 3}


@pytest.mark.parametrize(
    "draft",
    [
        Either(BESIDE, Stand((2,), (1,))),
        Either(Prefilled(Stand((1,), (1,))), Chain(1)),
        Watched(Either(BESIDE, Coupled(1)), lambda prefix, tree: None),
        Phrase(Either(BESIDE, Chain(1)), 1, 1),
        Cascade(Heads(), sample_match, 1),
        Cascade(Either(Prefilled(BigramRecycling()), Lookup(1, 1, 1)), sample_match, 1),
    ],
    ids=_called,
)
def test_the_law_of_joined_drafts_is_plain_decodings(draft):
    proof = prove(Speculate(draft, rejection, budget=2), LAW, quick=True)
    assert proof.ok, proof.counterexample


@pytest.mark.parametrize(
    "draft", [Either(BESIDE, Heads()), Merge(Heads(), BESIDE), Either(Auto(), Heads())], ids=_called
)
def test_the_seed_of_joined_drafts_is_plain_decodings(draft):
    proof = prove(Speculate(draft, budget=2), SEED, quick=True)
    assert proof.ok, proof.counterexample


# ---- abilities


@dataclass
class Able(Draft):
    """A drafter that can do everything that a source may, and notes what it hears."""

    resting: int = 0
    heard: list = field(default_factory=list)

    @property
    def reuses_noise(self):
        return True

    def begin(self, prefix):
        return Doing(self)


class Doing(Source):
    want = ("hidden:0", "prompt:3")
    ahead = 7
    listens = True

    def __init__(self, able):
        self.able = able

    def rest(self, prefix):
        return self.able.resting

    def propose(self, prefix, budget, chance):
        yield from ()
        self.able.heard.append(("asked", len(prefix)))
        return Tree.chain([chosen(x) for x in prefix.text[-1:]])

    def learn(self, prefix, tree, scores):
        self.able.heard.append(("learnt", len(prefix)))

    def told(self, text, tops):
        self.able.heard.append(("told", sorted(tops)))


ALONE = ("either", "merge", "watched", "prefilled", "tetris", "device first")  # nothing else drafts in these


@pytest.mark.parametrize("combinator", [name for name in COMBINATORS if name != "cascade"])
def test_the_whole_can_what_its_part_can(combinator):
    able = Able(resting=5)
    whole = COMBINATORS[combinator](able)
    prefix = Prefix.of((0, 1), Same())
    source = begun(whole, prefix)
    assert whole.reuses_noise
    assert set(Doing.want) <= set(source.want)
    assert len(set(source.want)) == len(source.want)
    assert (source.rest(prefix), source.ahead) == ((5, 7) if combinator in ALONE else (0, 7))
    assert source.listens
    source.told((0, 1), {1: [(1, 1.0)]})
    assert able.heard == [("told", [1])]


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("combinator", ALONE)
def test_a_drafter_alone_in_a_combinator_is_as_able_as_before(name, combinator):
    draft, prefix = DRAFTERS[name].draft, Prefix.of((0, 1), Same())
    if refused(draft, combinator):
        return
    part, whole = begun(draft, prefix), begun(COMBINATORS[combinator](draft), prefix)
    told = ("prompt:8",) if combinator == "prefilled" else ()
    assert whole.want == tuple(dict.fromkeys((*told, *part.want)))
    assert (whole.rest(prefix), whole.ahead, whole.listens) == (part.rest(prefix), part.ahead, part.listens)
    assert COMBINATORS[combinator](draft).reuses_noise == draft.reuses_noise


@pytest.mark.parametrize("combinator", [name for name in COMBINATORS if name != "cascade"])
def test_every_round_is_learnt_from_by_who_was_asked_and_who_was_not(combinator):
    """So the places that were heard of are those where rounds ended."""
    able = Able()
    case = case_of("none")
    target = case.tables()["target"]
    target.score = without_states(target.score)
    engine = Engine({"target": target})
    job = engine.submit(Speculate(COMBINATORS[combinator](able)), case.prompt, Philox(1), Same(), Stop(most=9))
    engine.run()
    ends, at = [], len(case.prompt)
    for emit in job.emitted:
        at += len(emit.tokens)
        ends.append(at)
    assert [place for what, place in able.heard if what == "learnt"] == ends[:-1]
    asked = [place for what, place in able.heard if what == "asked"]
    assert asked
    if combinator == "either, second":
        assert len(asked) < len(ends) - 1


def without_states(score):
    """A table has no hidden states to tell."""
    return lambda asked: score([ask._replace(want=tuple(w for w in ask.want if "hidden" not in w)) for ask in asked])


def test_a_part_that_rests_is_not_asked_while_others_draft():
    for combinator in ("either", "merge"):
        able = Able(resting=3)
        whole = begun({"either": Either, "merge": Merge}[combinator](able, BESIDE), Prefix.of((0, 1, 0), Same()))
        assert whole.rest(Prefix.of((0, 1, 0), Same())) == 0
        tree = _driven(whole.propose(Prefix.of((0, 1, 0), Same()), 4, Philox(0)))
        assert tree.tokens(tree.path(0)) == (1,)
        assert not able.heard


def _driven(proposing):
    with pytest.raises(StopIteration) as end:
        next(proposing)
    return end.value.value


def test_a_mask_is_never_written():
    """Its number is −1, and the last token of the vocabulary must not be taken for it."""
    for verify in (sample_match, rejection, zeroing, kseq, block, traversal, race):
        for seed in range(4):
            found = written(Speculate(Masks(2), verify, budget=6), "none", seed)
            assert set(found.tokens) <= {0, 1, 2, 3}


# ---- what was broken


def knowing(period, heads):
    """A table that counts, and heads that know what comes one and more tokens after a token."""
    target = Table(period, lambda text: F.one_hot(torch.tensor((text[-1] + 1) % period), period).tolist())
    target.heads = [
        Table(period, lambda text, k=k: F.one_hot(torch.tensor((text[-1] + k) % period), period).tolist())
        for k in range(1, heads + 1)
    ]
    return target


@pytest.mark.parametrize(
    "draft",
    [
        Either(Heads()),
        Either(Lookup(9, 9, 2), Heads()),
        Merge(Heads()),
        Either(Lookup(5, 5, 1), Heads()),
        Masks(1, (Heads(),)),
    ],
    ids=_called,
)
def test_joined_heads_are_heard_in_every_round(draft):
    """Rounds of a copy in between do not make them deaf: what they guess next stands as before."""
    engine = Engine({"target": knowing(5, 3)})
    job = engine.submit(Speculate(draft, budget=12), (0,), Philox(0), Same(), Stop(most=17))
    engine.run()
    assert job.result().tokens == tuple((1 + i) % 5 for i in range(17))
    assert job.trace.accepted_tokens >= 10


def test_heads_find_their_place_below_the_second_of_two_equal_siblings():
    """Independent paths may begin alike, and only one of them go on."""
    tree = Tree(tuple(chosen(x) for x in (2, 2, 3)), (ROOT, ROOT, 1))
    assert tree.end((2, 3)) == 2
    with pytest.raises(ValueError, match="token 4 was not drafted"):
        tree.end((2, 4))
    case = case_of("none")
    for seed in range(8):
        engine = Engine(case.models(case.tables()))
        method = Speculate(Either(SpecInfer(2, 2), Heads()), rejection)
        job = engine.submit(method, case.prompt, Philox(seed), Same(), Stop(most=12))
        engine.run()
        assert len(job.result().tokens) == 12


def first(draft):
    """The first ask of a text that is drafted so, but for what forwards cost: nothing."""
    decoding = Speculate(draft)((0, 1, 2), Philox(0), Same(), Stop(most=200))
    asked = next(decoding)
    return decoding.send(FREE) if isinstance(asked, Price) else asked


@pytest.mark.parametrize("combinator", [name for name in COMBINATORS if name != "cascade"])
def test_the_prompts_laws_are_asked_for_and_told(combinator):
    asked = first(COMBINATORS[combinator](Prefilled(BigramRecycling())))
    assert isinstance(asked, Check)
    assert "prompt:8" in asked.want


def test_a_joined_drafter_drafts_from_the_prompts_laws_as_alone():
    def drafted(draft):
        engine = Engine({"target": knowing(7, 0)})
        job = engine.submit(Speculate(draft), (0, 1, 2, 3, 4, 5, 6), Philox(0), Same(), Stop(most=8))
        engine.run()
        return [(emit.tokens, emit.accepted) for emit in job.emitted]

    alone = drafted(Prefilled(BigramRecycling()))
    assert alone[1][1] > 3  # the prompt shows all that follows
    assert drafted(Either(Prefilled(BigramRecycling()))) == alone
    assert drafted(Watched(Prefilled(BigramRecycling()), lambda prefix, tree: None)) == alone
    assert drafted(BigramRecycling())[1][1] == 0


@pytest.mark.parametrize("combinator", ["either", "merge", "watched"])
def test_a_model_that_drafts_for_itself_goes_on_doing_so(combinator):
    asked = first(COMBINATORS[combinator](OnDevice()))
    assert isinstance(asked, Write)
    assert asked.ahead == first(OnDevice()).ahead == 31


def test_auto_sleeps_on_while_others_draft():
    """Where a model drafts for itself auto lies down; rounds of another drafter do not wake it."""
    prefix = Prefix.of((0, 1, 0), Same())
    whole = begun(Either(Auto(), BESIDE), prefix)
    auto = whole.sources[0]
    proposing = whole.propose(prefix, 6, Philox(0))
    next(proposing)
    proposing.send(Cost((1,), (1.0,), speculates=True))
    with pytest.raises(StopIteration) as end:
        proposing.send(None)
    tree = end.value.value
    assert len(tree)
    assert auto.ahead == 6
    after = prefix.then((1, 0))
    whole.learn(after, tree, None)
    assert auto.rest(after) > 100


# ---- what is no drafter


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Either((Lookup(), Chain())), "either:drafts=.*each as an argument of its own"),
        (lambda: Merge([Lookup()]), "merge:drafts=.*each as an argument of its own"),
        (lambda: Either(Lookup), "not the class, as in Lookup"),
        (lambda: Cascade(3), "cascade:draft=3 cannot be used; expected a drafter"),
        (lambda: Cascade(Lookup(), 3), "cascade:verify=3 cannot be used"),
        (lambda: Phrase("chain"), "phrase:draft='chain' cannot be used"),
        (lambda: Prefilled(None), "prefilled:draft=None cannot be used"),
        (lambda: Watched(3, print), "watched:draft=3 cannot be used"),
        (lambda: Masks(1, BigramRecycling()), "masks:beside=.*expected a tuple"),
        (lambda: Masks(1, (3,)), "masks:beside=3 cannot be used"),
        (lambda: Speculate(3), "speculate:draft=3 cannot be used"),
        (lambda: Speculate(Lookup(), 3), "speculate:verify=3 cannot be used"),
    ],
)
def test_what_is_no_drafter_is_refused_in_words(made, said):
    with pytest.raises(BadRequest, match=said):
        made()


def test_a_source_that_is_none_is_refused_in_words():
    class Mine(Draft):
        def begin(self, prefix):
            return 3

    for draft in (Mine(), Either(Mine())):
        with pytest.raises(BadRequest, match=r"Mine\.begin gave an object of type int; expected a source"):
            first(draft)

"""What a prompt's own laws tell drafters: the runner's answer, and the drafters that use it."""

from dataclasses import dataclass, replace

import pytest
import torch
from proposing import answered
from toy import Toy, logits_of

from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.claim import LAW
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Prefix, Same
from unspool.proof import prove
from unspool.rules.decode import Speculate, plain
from unspool.rules.draft import Aligned, BigramRecycling, Lookup, Prefilled, Recycle, Stand, Successors
from unspool.rules.verify import rejection
from unspool.runtime.cache import forward_request as growth
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.cache.uncached_model import UncachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine

TEXT = (1, 2, 3, 1, 2, 4, 0)
VOCAB = 5


def wanted(model, text, count=3):
    session = model.open(text)
    return session, model.score([ScoreRequest(session, NOTHING, (f"prompt:{count}",))])[0]


def truth(text, places, count=3):
    """The best tokens at each place with their probabilities, worked out one by one."""
    found = {}
    for place in places:
        p = logits_of(tuple(text[:place]), VOCAB).softmax(0)
        found[place] = [(x, float(p[x])) for x in p.argsort(descending=True).tolist()[:count]]
    return found


def same(tops, other):
    assert list(tops) == list(other)
    for place, best in tops.items():
        assert [x for x, _ in best] == [x for x, _ in other[place]]
        assert [p for _, p in best] == pytest.approx([p for _, p in other[place]])


# ---- the runner


def test_a_cold_prompt_tells_the_best_tokens_at_every_place_but_the_first_and_the_next():
    _, scores = wanted(CachedModel(Toy(VOCAB)), TEXT)
    same(scores.tops, truth(TEXT, range(1, len(TEXT))))
    assert torch.equal(scores.leaf[0].scores, logits_of(TEXT, VOCAB))


def test_a_table_tells_the_same():
    table = Table(VOCAB, lambda text: logits_of(text, VOCAB).exp().tolist())
    _, scores = wanted(table, TEXT)
    same(scores.tops, truth(TEXT, range(1, len(TEXT))))


def test_what_a_cache_held_is_told_again_if_it_was_told_before_and_else_left_out():
    model = CachedModel(Toy(VOCAB))
    first, scores = wanted(model, TEXT)
    told = scores.tops.keys()
    assert told == {*range(1, len(TEXT))}
    longer = wanted(model, (*TEXT, 2, 2))[1].tops
    assert longer.keys() == {*told, 8}  # the prompt's last token is computed, its law was not kept
    same({place: longer[place] for place in told}, truth(TEXT, told))
    assert model.score([ScoreRequest(first, NOTHING, ("prompt:2",))])[0].tops == {i: scores.tops[i][:2] for i in told}

    untold = CachedModel(Toy(VOCAB))
    read = untold.open(TEXT)
    untold.score([ScoreRequest(read, NOTHING)])
    assert wanted(untold, (*TEXT, 2, 2))[1].tops.keys() == {8}


def test_only_the_session_that_asked_is_told_and_all_laws_stay_the_same():
    model = CachedModel(Toy(VOCAB))
    texts = [(3, 3, 1), TEXT, (4, 0, 4, 0)]
    asked = [
        ScoreRequest(model.open(t), NOTHING, w) for t, w in zip(texts, [(), ("prompt:1",), ("prompt:2",)], strict=True)
    ]
    answers = model.score(asked)
    for text, scores, count in zip(texts, answers, (0, 1, 2), strict=True):
        assert torch.equal(scores.leaf[0].scores, logits_of(text, VOCAB))
        same(scores.tops, truth(text, range(1, len(text)), count) if count else {})


def test_of_a_long_prompt_only_the_last_places_are_told(monkeypatch):
    monkeypatch.setattr(growth, "MOST_TOLD", 2)
    assert wanted(CachedModel(Toy(VOCAB)), TEXT)[1].tops.keys() == {5, 6}


def test_hidden_states_can_be_wanted_beside():
    model = CachedModel(Toy(VOCAB))
    session = model.open(TEXT)
    (scores,) = model.score([ScoreRequest(session, NOTHING, ("hidden:0", "prompt:2"))])
    assert list(scores.hidden) == ["hidden:0"]
    assert scores.hidden["hidden:0"].shape == (1, 3)
    assert len(scores.tops) == len(TEXT) - 1


@pytest.mark.parametrize("name", ["prompt:x", "prompt:0", "prompt:", "promt:3"])
def test_a_want_that_makes_no_sense_is_refused(name):
    model = CachedModel(Toy(VOCAB))
    with pytest.raises(BadRequest, match="'prompt:COUNT', as in 'prompt:8'"):
        model.score([ScoreRequest(model.open(TEXT), NOTHING, (name,))])


def test_a_runner_that_cannot_tell_says_nothing():
    @dataclass(frozen=True)
    class Reader:
        vocab: int = VOCAB
        context: None = None

        def read(self, texts, at, want):
            rows = [logits_of(tuple(text[: i + 1]), VOCAB) for text in texts.tolist() for i in at.tolist()]
            return torch.stack(rows), {}

    _, scores = wanted(UncachedModel(Reader()), TEXT)
    assert scores.tops == {}
    assert torch.equal(scores.leaf[0].scores, logits_of(TEXT, VOCAB))


# ---- copies with the target's opinion beside them


def first_tree(draft, text, budget, table):
    """The first tree of a drafter, and how often it asked."""
    prefix = Prefix.of(text, Same())
    asking = draft.begin(prefix).propose(prefix, budget, Philox(0))
    return answered(asking, lambda ask: table.score([ScoreRequest(table.open(text), ask.tree, ask.want)])[0])


REPEATING = (1, 2, 3, 4, 0, 1, 2)  # after 1, 2 came 3, 4, 0 at the places 2, 3, 4


@pytest.fixture
def table():
    return Table(VOCAB, lambda text: logits_of(text, VOCAB).exp().tolist())


def test_beside_each_copied_token_stand_the_best_others_of_its_place(table):
    tree, asks = first_tree(Aligned(Lookup(2, 2, 3), beside=2), REPEATING, 9, table)
    assert asks == 1
    assert tree.tokens(tree.path(2)) == (3, 4, 0)
    for level, token in enumerate((3, 4, 0)):
        above = ROOT if level == 0 else level - 1
        kids = tree.tokens(tree.kids(above))
        ranked = table.law(REPEATING[: 2 + level]).top(3)
        assert kids == (token, *[x for x in ranked if x != token][:2])
        assert len(set(kids)) == 3


def test_a_token_that_the_target_was_sure_of_goes_alone():
    def sure_of_four(text):
        return [9.0 if x == (4 if text[-1] == 3 else x) else 0.01 for x in range(VOCAB)]

    table = Table(VOCAB, sure_of_four)
    tree, _ = first_tree(Aligned(Lookup(2, 2, 3), beside=1), REPEATING, 9, table)
    assert [len(tree.kids(node)) for node in (ROOT, 0, 1)] == [2, 1, 2]  # 4 follows 3 for sure, all else is even
    tree, _ = first_tree(Aligned(Lookup(2, 2, 3), beside=1, poor=2), REPEATING, 9, table)
    assert [len(tree.kids(node)) for node in (ROOT, 0, 1)] == [2, 2, 2]
    with pytest.raises(BadRequest, match="aligned:poor"):
        Aligned(poor=-1)


def test_what_the_target_thought_of_written_text_is_known_too(table):
    """What was written in a round is copied in a later one, with the others that were likely there."""
    prefix = Prefix.of((1, 2), Same())
    source = Aligned(Lookup(2, 2, 3), beside=1).begin(prefix)
    answered(
        source.propose(prefix, 9, Philox(0)), lambda ask: table.score([ScoreRequest(table.open((1, 2)), NOTHING)])[0]
    )
    draft = Tree.chain([chosen(3), chosen(4)])
    (scores,) = table.score([ScoreRequest(table.open((1, 2)), draft)])
    written = prefix.then((3, 4, 0))
    source.learn(written, draft, scores)
    for place in (2, 3, 4):
        ((best, p), (second, _)) = source.tops[place]
        law = table.law(written.text[:place])
        assert [best, second] == law.top(2)
        assert p == pytest.approx(law[best])
    (scores,) = table.score([ScoreRequest(table.open(written.text), NOTHING)])
    source.learn(written.then((1,)), NOTHING, scores)
    assert source.tops.keys() >= {2, 3, 4, 5}


def test_a_small_budget_goes_to_the_copy_first(table):
    shapes = {budget: first_tree(Aligned(Lookup(2, 2, 3)), REPEATING, budget, table)[0] for budget in (2, 3, 4, 6)}
    assert [len(tree) for tree in shapes.values()] == [2, 3, 4, 6]
    assert shapes[3].parent == (ROOT, 0, 1)
    assert shapes[6].parent == (ROOT, 0, 1, ROOT, ROOT, 0)


def test_without_others_or_a_match_it_is_lookup(table):
    alone, asks = first_tree(Aligned(Lookup(2, 2, 3), beside=0), REPEATING, 9, table)
    assert asks == 0
    copied, _ = first_tree(Lookup(2, 2, 3), REPEATING, 9, table)
    assert alone.parent == copied.parent
    assert alone.tokens(range(len(alone))) == copied.tokens(range(len(copied))) == (3, 4, 0)
    assert first_tree(Aligned(Lookup(2, 2, 3)), (1, 2, 3), 9, table)[0] == Tree()
    with pytest.raises(BadRequest, match="aligned:beside=-1"):
        Aligned(beside=-1)


METHODS = [
    Speculate(Aligned(Lookup(2, 1, 3)), budget=9),
    Speculate(Prefilled(Recycle()), budget=9),
    Speculate(Prefilled(BigramRecycling()), budget=9),
    Speculate(Prefilled(Stand((2, 1), (2, 1)))),
]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method.draft).__name__)
def test_warm_or_cold_the_text_is_that_of_plain_decoding(method):
    model = CachedModel(Toy(VOCAB, room=200), prefix_cache=2)
    texts = []
    for decoder in (plain(), method, method):  # the last one finds the prompt in the cache
        engine = Engine({"target": model})
        job = engine.submit(decoder, TEXT, Philox(4), stop=Stop(most=20))
        engine.run()
        texts.append(job.result().tokens)
    assert texts[0] == texts[1] == texts[2]


# ---- memories that start with the prompt


def test_recycling_knows_the_rows_of_the_prompt_after_the_first_round(table):
    rows, prefix = Successors(3), Prefix.of((*TEXT, 1), Same())
    source = Prefilled(Recycle(shared=rows)).begin(prefix)
    assert source.want == ("prompt:8",)
    session = table.open(prefix.text)
    (scores,) = table.score([ScoreRequest(session, NOTHING, source.want)])
    source.learn(prefix.then((0,)), NOTHING, scores)
    assert source.want == ()
    assert all(rows.after(token) for token in TEXT)
    assert rows.after(TEXT[2]) == tuple(table.law(TEXT[:3]).top(3))  # it stands there once


def test_a_drafter_that_remembers_nothing_is_refused():
    with pytest.raises(BadRequest, match="Lookup has no use for the laws of the prompt"):
        Prefilled(Lookup()).begin(Prefix.of(TEXT, Same()))


def test_drawn_drafts_from_the_prompt_s_laws_are_exact():
    assert prove(Speculate(Prefilled(Stand((1,), (1,))), rejection), LAW, quick=True).ok


@pytest.fixture
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other on a busy machine are ten times slower
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_on_a_real_model_the_prompt_s_laws_save_rounds(smollm2):
    asked = [{"role": "user", "content": "Write these words as a list: red, green, blue, red, green, blue."}]
    outputs = {}
    for name in ("plain", "recycle", "prefilled", "aligned"):
        smollm2.model.forget()
        outputs[name] = smollm2.generate(asked, Settings(max_tokens=16), name)
    assert len({output.tokens for output in outputs.values()}) == 1
    assert outputs["prefilled"].trace.rounds < outputs["recycle"].trace.rounds


@pytest.mark.parametrize(
    "spec", ["prefilled", *(pytest.param(x, marks=pytest.mark.slow) for x in ("aligned", "merge"))]
)
def test_what_was_told_of_a_prompt_is_told_again_when_the_cache_holds_it(smollm2, spec):
    """A warm prompt brings as many tokens per forward as a cold one, and so do all samples of one prompt."""
    text = smollm2.encode([{"role": "user", "content": "Repeat: the cat sat on the mat and the cat sat on the hat."}])
    few = Settings(max_tokens=16)
    smollm2.model.forget()
    cold, warm = (smollm2.generate(text, few, spec) for _ in range(2))
    assert cold.tokens == warm.tokens
    assert warm.trace.cached == len(text) - 1
    assert warm.trace.forwards["target"] <= cold.trace.forwards["target"]
    smollm2.model.forget()
    first, *others = smollm2.samples(text, replace(few, n=3), spec)
    assert all(each.trace.forwards["target"] <= first.trace.forwards["target"] for each in others)


def test_what_was_told_goes_with_the_slots(smollm2):
    model = smollm2.model
    model.forget()
    smollm2.generate("one two three", Settings(max_tokens=2), "prefilled")
    assert model._tops
    held = len(model._tops)
    model.forget()
    taken = model.take(model.slots.room)
    model.slots.drop(taken)
    assert held > 0
    assert not model._tops

"""Item sets in flat arrays: the same masks as a trie built item by item, one text or a batch, in every decoder."""

from __future__ import annotations

import json
import math
import weakref
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from letters import Letters
from truth import law_of_text

from unspool.api.settings import Settings
from unspool.core.chance import Every, Philox, total_variation
from unspool.core.errors import BadRequest, EmptyLaw
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.warp.warp import Prefix
from unspool.proof.case import Case
from unspool.recipes.methods import entries
from unspool.rules.constrain import Constrained, ItemSet, Shelf, Static, choices, regex
from unspool.rules.constrain.form import spelt
from unspool.rules.constrain.itemset import DEAD, OVER, ROOT, TENSORS
from unspool.rules.constrain.trie import Trie
from unspool.rules.decode import Denoise, Speculate
from unspool.rules.draft import Forced
from unspool.rules.search import Beam, Smc
from unspool.rules.search.length_norm import Power, sure
from unspool.rules.unmask import Confident
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("one_thread")


def letters(pieces, ends=2):
    return Letters(tuple(chr(97 + i % 26) * (1 + i // 26) for i in range(pieces)), controls=0, ends=ends)


@st.composite
def sets(draw):
    """A vocabulary and items: few tokens, so that beginnings are shared, or many, so that some nodes are wide."""
    words = letters(draw(st.sampled_from([1, 2, 3, 33, 70])), draw(st.integers(0, 2)))
    tokens = st.integers(0, len(words.pieces) - 1)
    item = st.lists(tokens | st.integers(0, min(1, len(words.pieces) - 1)), min_size=1, max_size=7).map(tuple)
    return words, draw(st.lists(item, min_size=1, max_size=40))


def both(words, items):
    """Every node of the trie built item by item, and the same node of the flat one, with the number of each."""
    todo = [(Trie(items, words).start(), Static(ItemSet.of(items, words.size, words.eos)).start())]
    for slow, fast in todo:
        yield slow, fast
        todo += [(slow.step(t), fast.step(t)) for t in slow.trie.next[slow.at]]


@given(sets())
@hypothesis_settings(deadline=None, max_examples=60)
def test_every_state_is_that_of_a_trie_built_item_by_item(case):
    words, items = case
    numbers = []
    for slow, fast in both(words, items):
        mask = slow.mask()
        assert torch.equal(fast.mask(), mask)
        assert fast.complete() == slow.complete()
        assert fast.forced() == slow.forced()
        numbers.append(fast.node)
        for token in {0, words.size - 1, *mask.nonzero().flatten()[:3].tolist(), int((~mask).int().argmax())}:
            assert fast.allows(token) == slow.allows(token)
            left, right = slow.step(token), fast.step(token)
            assert torch.equal(left.mask(), right.mask())
            assert (left.complete(), left.forced()) == (right.complete(), right.forced())
            assert torch.equal(left.step(token).mask(), right.step(token).mask())
    assert sorted(numbers) == list(range(len(numbers)))  # every node once, and there are no others
    assert len(numbers) == len(ItemSet.of(items, words.size, words.eos).ends)


@given(sets(), st.randoms(use_true_random=False))
@hypothesis_settings(deadline=None, max_examples=60)
def test_a_batch_steps_as_each_of_its_rows_alone(case, random):
    words, items = case
    alone = [fast for _, fast in both(words, items)]
    found = alone[0].items
    random.shuffle(alone)
    nodes = torch.tensor([place.node for place in alone] + [OVER, DEAD])
    alone += [replace(alone[0], node=OVER), replace(alone[0], node=DEAD)]
    scores = torch.randn(len(nodes), words.size, generator=torch.Generator().manual_seed(len(nodes)))
    masks = torch.stack([place.mask() for place in alone])
    want = scores.masked_fill(~masks, -math.inf)
    assert torch.equal(found.masked(nodes, scores), want)
    tokens = torch.tensor([random.randrange(words.size) for _ in alone])
    after = [place.step(token).node for place, token in zip(alone, tokens.tolist(), strict=True)]
    assert found.step(nodes, tokens).tolist() == after
    some = found.candidates(nodes, scores, max(found.widths))
    for row, place in enumerate(alone):
        real = some.tokens[row] >= 0
        listed = some.tokens[row][real].tolist()
        assert sorted(listed) == place.mask().nonzero().flatten().tolist()
        assert some.scores[row][real].tolist() == scores[row, listed].tolist()
        assert some.nodes[row][real].tolist() == [place.step(token).node for token in listed]
        assert (some.scores[row][~real] == -math.inf).all()
        assert (some.nodes[row][~real] == DEAD).all()


@given(sets())
@hypothesis_settings(deadline=None, max_examples=12)
def test_the_kernels_give_what_pytorch_gives(case):
    pytest.importorskip("triton", reason="Triton is not installed here")
    from interpreted import INTERPRETED

    from unspool.kernels import follow

    words, items = case
    found = ItemSet.of(items, words.size, words.eos).to("cpu" if INTERPRETED else "cuda")
    check_kernels(found, follow, torch.arange(DEAD, min(len(found.ends), 12), device=found.device))


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
def test_the_kernels_cut_wide_rows_into_blocks(kind):
    """Lists that are searched for a block's part, lists that end in the middle of one, bits, and ends in a last one."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    from interpreted import INTERPRETED

    from unspool.kernels import follow

    vocab = 2 * follow.BLOCK + 100
    wide, long, short = range(0, vocab - 2, 3), range(5, vocab - 2, 37), (0, follow.BLOCK - 1, follow.BLOCK, vocab - 3)
    assert len(wide) > vocab // 32 > len(long) > follow.FEW
    items = [*((1, t) for t in wide), *((2, t) for t in long), *((3, t) for t in short), (1,)]
    found = ItemSet.of(items, vocab, (vocab - 1, vocab - 2)).to("cpu" if INTERPRETED else "cuda")
    assert found.wide.tolist() == [1]
    check_kernels(found, follow, torch.arange(DEAD, 5, device=found.device), kind)


def check_kernels(items, follow, nodes, kind=torch.float32):
    scores = torch.randn(len(nodes), items.vocab, device=items.device).to(kind)
    assert torch.equal(follow.masked(items, nodes, scores), items.gathered(nodes, scores))
    apart = torch.randn(items.vocab, len(nodes), device=items.device).to(kind).T  # rows that are not contiguous
    assert torch.equal(follow.masked(items, nodes.int(), apart), items.gathered(nodes, apart))
    for ours, theirs in zip(
        follow.candidates(items, nodes, apart, max(items.widths)),
        items.listed(nodes, apart, max(items.widths)),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    tokens = items.gathered(nodes, scores).float().argmax(1)
    for chosen in (tokens, tokens.roll(1), torch.full_like(tokens, items.vocab - 1)):
        assert torch.equal(follow.step(items, nodes, chosen), items.searched(nodes, chosen))


# ---- decoders

AB = Letters(("a", "b"), controls=0, ends=1)
ITEMS = [(0, 1), (1,), (0, 0, 1), (1, 1, 0)]
CASE = Case(3, ((3, 2, 1), (1, 4, 2), (2, 1, 3)), ((1, 1, 2), (2, 3, 1), (4, 1, 1)), (0,), "none", 2, None, 4, False)
STOP = Stop(frozenset({2}), most=5)
EXACT = ["plain", "lookup", "chain", "rsd_c", "forced", "rejection", "block", "traversal"]


def written(method, warp, chance):
    engine = Engine(CASE.models(CASE.tables()))
    job = engine.submit(method, CASE.prompt, chance, warp, STOP)
    engine.run()
    return job.result()


@pytest.mark.parametrize("name", EXACT)
def test_exact_rules_have_the_law_of_plain_decoding_under_a_trie(name):
    """The truth is told by the trie built item by item; what decodes has the flat one."""
    fast, slow = Static(ItemSet.of(ITEMS, 3, {2})), Trie(ITEMS, AB)
    want = law_of_text(CASE.tables()["target"], CASE.prompt, Constrained(slow), STOP)
    assert {done.tokens for done in want} == {(*item, 2) for item in ITEMS}
    entry = entries()[name]
    for method in list(entry.trials(entry.rule))[:1]:
        law = Every(most=4000).law(lambda chance, method=method: written(method, Constrained(fast), chance))
        assert total_variation(law, want) < 1e-12


def test_an_item_too_few_is_seen_by_that():
    want = law_of_text(CASE.tables()["target"], CASE.prompt, Constrained(Trie(ITEMS, AB)), STOP)
    fewer = Constrained(Static(ItemSet.of(ITEMS[:-1], 3, {2})))
    entry = entries()["plain"]
    law = Every().law(lambda chance: written(entry.rule(), fewer, chance))
    assert total_variation(law, want) > 0.01


def test_a_beam_for_every_item_ranks_them_all():
    warp, seen = Constrained(Static(ItemSet.of(ITEMS, 3, {2}))), []
    written(Beam(9, Power(0.0), sure, watch=seen.extend), warp, Philox(0))
    want = law_of_text(CASE.tables()["target"], CASE.prompt, Constrained(Trie(ITEMS, AB)), STOP)
    ranked = sorted(want.items(), key=lambda pair: -pair[1])
    assert [text.tokens for text in seen] == [done.tokens for done, _ in ranked]
    assert [text.logp for text in seen] == pytest.approx([math.log(p) for _, p in ranked])


def test_particles_are_items():
    seen = []
    written(Smc(6, watch=seen.extend), Constrained(Static(ItemSet.of(ITEMS, 3, {2}))), Philox(3))
    assert len(seen) == 6
    assert {text.tokens[:-1] for text in seen} <= set(ITEMS)


def test_a_canvas_is_filled_with_an_item_in_every_branch():
    warp, stop = Constrained(Static(ItemSet.of(ITEMS, 3, {2}))), Stop(frozenset({2}), most=4, piece=AB.piece)

    def program(chance):
        engine = Engine(CASE.models(CASE.tables()))
        job = engine.submit(Denoise(Confident(0.5), size=4), CASE.prompt, chance, warp, stop)
        engine.run()
        return job.result()

    law = Every(most=3000).law(program)
    assert {done.tokens[:-1] if done.tokens[-1] == 2 else done.tokens for done in law} <= set(ITEMS)
    assert len(law) > 1


def test_forced_tokens_are_drafted():
    warp = Constrained(Static(ItemSet.of([(0, 1, 1, 0), (1, 0, 0, 1)], 3, {2})))
    source = Forced().begin(prefix := Prefix.of((2,), warp))
    assert source.below(start := source.start(prefix))[1] == []
    assert source.below(source.then(start, 0))[1] == [(1, 1.0)]
    done = written(Speculate(Forced(), budget=4), warp, Philox(0))
    assert done.tokens in [(0, 1, 1, 0, 2), (1, 0, 0, 1, 2)]


@pytest.mark.parametrize("width", [3, 400])
def test_a_search_by_candidates_finds_the_items_by_their_scores(width):
    """The paper's loop: log-probabilities of the whole vocabulary, not normalised again; all items if all fit."""
    vocab, rows = 50, torch.Generator().manual_seed(1)
    matrix = torch.randint(0, vocab - 1, (400, 3), generator=rows)
    matrix[:, 0] %= 7
    items = ItemSet.of(matrix, vocab, (vocab - 1,))
    logp = torch.randn(4, vocab, generator=rows, dtype=torch.float64).log_softmax(1)  # by depth alone
    nodes, score, texts = torch.tensor([ROOT]), torch.zeros(1, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.long)
    for depth in range(4):
        found = items.candidates(nodes, logp[depth].expand(len(nodes), -1), items.widths[depth])
        worth = (score[:, None] + found.scores).flatten()
        score, best = worth.topk(min(width, int((worth > -math.inf).sum())))
        row = best // found.tokens.shape[1]
        texts = torch.cat((texts[row], found.tokens.flatten()[best, None]), 1)
        nodes = found.nodes.flatten()[best]
    assert (nodes == OVER).all()
    listed = {tuple(item) for item in matrix.tolist()}
    truth = {item: float(sum(logp[i, t] for i, t in enumerate((*item, vocab - 1)))) for item in listed}
    got = [tuple(text[:-1]) for text in texts.tolist()]
    assert score.tolist() == pytest.approx([truth[item] for item in got])
    if width >= len(listed):
        assert got == sorted(listed, key=truth.get, reverse=True)
    else:
        assert len(set(got)) == width
        assert set(got) <= listed


def test_it_combines_with_other_forms():
    words = Letters(("a", "b", "ab", "("), controls=0, ends=1)
    static = Static(ItemSet.of([spelt(text, words) for text in ("ab", "a(", "(b", "b")], words.size, words.eos))
    then = static.then(choices("(")).fit(words).start()
    state = then.step(words.encode("b")[0])
    assert state.mask().nonzero().flatten().tolist() == [3]
    assert state.step(3).complete()
    pytest.importorskip("llguidance")
    both = (static & regex("a.*")).fit(words).start()
    assert both.mask().nonzero().flatten().tolist() == [0, 2]


def test_the_default_model_names_an_item(smollm2):
    words = smollm2.vocabulary
    towns = ["Zanzibar", "Zagreb", "Rome", "Rome is old", "New York", "New Delhi"]
    items = ItemSet.of((spelt(town, words) for town in towns), words.size, words.eos)
    options = Settings(constraint=Static(items), temperature=1.0, seed=1, max_tokens=12, n=3)
    chats = [[{"role": "user", "content": f"Name a town, please, number {i}."}] for i in (1, 2)]
    texts = [output.text for output in smollm2.batch(chats, options)]
    assert set(texts) <= set(towns)
    again = [output.text for chat in chats for output in smollm2.samples(chat, options, "forced")]
    assert again == texts
    with pytest.raises(BadRequest, match=r"over 10 tokens.*vocabulary\.size"):
        smollm2.generate(chats[0], Settings(constraint=Static(ItemSet.of([(1,)], 10))))


# ---- sets that change


def test_running_requests_keep_their_set_and_new_ones_have_the_new():
    words = letters(2, ends=1)
    old, new = ItemSet.of([(0, 0, 0, 0), (0, 0, 0, 1)], 3, {2}), ItemSet.of([(1, 1), (1, 0)], 3, {2})
    gone = weakref.ref(old)
    shelf, stop = Shelf(old), Stop(frozenset({2}), most=6)
    engine = Engine({"target": Table(3, lambda text: (2, 3, 1))})
    plain = entries()["plain"].rule()
    options = Settings(constraint=shelf, temperature=1.0)
    jobs = [engine.submit(plain, (0,), Philox(1), options.warp(words), stop)]
    engine.step()
    assert shelf.swap(new) is old
    assert shelf.items is new
    del old
    jobs.append(engine.submit(plain, (0,), Philox(1), options.warp(words), stop))
    engine.run()
    assert jobs[0].result().tokens[:-1] in [(0, 0, 0, 0), (0, 0, 0, 1)]
    assert jobs[1].result().tokens[:-1] in [(1, 1), (1, 0)]
    del jobs, engine
    import gc

    gc.collect()
    assert gone() is None  # nothing holds on to what was taken off the shelf


def test_a_set_for_another_vocabulary_does_not_go_on_the_shelf():
    shelf = Shelf(ItemSet.of([(0,)], 3, {2}))
    for other in (ItemSet.of([(0,)], 4, {2}), ItemSet.of([(0,)], 3, {1})):
        with pytest.raises(BadRequest, match=r"the item set is .*; expected one over 3 tokens with ends \[2\]"):
            shelf.swap(other)
    assert shelf.items.count == 1


# ---- building


def test_items_come_as_lists_matrices_arrays_and_generators():
    rows = [(3, 1, 2), (3, 1), (0,), (3, 1, 2), (3, 2, 2)]
    lengths = [len(row) for row in rows]
    padded = torch.tensor([(*row, *[-7, 99][: 3 - len(row)]) for row in rows])
    want = ItemSet.of(rows, 5)
    assert len(want) == 4  # equal ones are one
    numpy = pytest.importorskip("numpy")
    narrow = numpy.array([[0 if t < 0 else t for t in row] for row in padded.tolist()], dtype=numpy.uint16)
    for other in (
        ItemSet.of((row for row in reversed(rows)), 5),
        ItemSet.of(padded, 5, lengths=lengths),
        ItemSet.of(padded.int(), 5, lengths=torch.tensor(lengths)),
        ItemSet.of(narrow, 5, lengths=lengths),
    ):
        assert all(torch.equal(getattr(other, name), getattr(want, name)) for name in TENSORS)
        assert (other.levels, other.widths) == (want.levels, want.widths) == ((1, 2, 2, 2), (2, 2, 1, 0))


def test_many_items_are_all_in_and_nothing_else_is():
    """So many that beginnings are told apart in several sorts, checked against a set of Python's."""
    random = torch.Generator().manual_seed(0)
    matrix = (torch.rand(60_000, 6, generator=random) ** 4 * 150_000).long()
    matrix[1::2, :4] = matrix[::2, :4]  # alike for four tokens
    lengths = torch.randint(1, 7, (60_000,), generator=random)
    items = ItemSet.of(matrix, 150_001, (150_000,), lengths)
    listed = {tuple(row[:n]) for row, n in zip(matrix.tolist(), lengths.tolist(), strict=True)}
    assert len(items) == len(listed)
    tried = torch.cat((matrix[:5000], matrix[:5000, [0, 1, 2, 3, 5, 4]]))
    nodes, right = torch.zeros(len(tried), dtype=torch.int64), torch.zeros(0)
    for depth in range(6):
        nodes = items.step(nodes, tried[:, depth])
        right = items.step(nodes, torch.full_like(nodes, 150_000)) == OVER
        assert right.tolist() == [tuple(row[: depth + 1]) in listed for row in tried.tolist()]
    assert 0 < int(right.sum()) < len(right)


def test_one_long_item_does_not_make_all_others_long():
    items = ItemSet.of([*product(range(9), repeat=3), range(3000)], 3001)
    assert len(items.levels) == 3001
    assert len(items) == 730
    place = Static(items).start().step(0).step(1).step(2)
    assert place.complete()
    assert place.step(3).forced() == tuple(range(4, 3000))


def test_memory_is_told_and_bounded():
    items = ItemSet.of([*product(range(4), range(60), range(2))], 64, {63})
    assert items.bytes == sum(getattr(items, name).nbytes for name in TENSORS)
    wide = int((items.first.diff() > 2).sum())
    assert items.wide.tolist() == list(range(5))  # the root and the four below it
    assert wide == 5
    assert items.bytes <= 9 * len(items.ends) + 4 + 4 + 8 * (4 + 4 * 60)
    assert f"{len(items)} items" in repr(items)


@pytest.mark.parametrize(
    ("items", "options", "why"),
    [
        ([], {}, "the item set is 'empty'"),
        ([(1, 2), (), (3,)], {}, "item 1 has no tokens"),
        ([(1, 2), (3,), (0, 9, 10)], {}, r"item 2 holds token 10, expected tokens from 0 to 9"),
        ([(1, 2), (3, -1)], {}, r"item 1 holds token -1"),
        ([(1, 2), (3, 2**40)], {}, r"item 1 is \(3, 1099511627776\); expected a sequence of token ids"),
        ([(1, 2), "ab"], {}, r"item 1 is 'ab'"),
        ([(1, 2), 3], {}, r"item 1 is 3"),
        ([(1, 2), (3, 0.5)], {}, r"item 1 is \(3, 0.5\)"),
        ([(1, 2), (3, 8), (8,)], {"stops": {8}}, r"item 1 holds token 8, which ends a text. Leave it out"),
        ([(1,)], {"stops": {10}}, r"stops is \(10,\); expected tokens from 0 to 9"),
        ([(1,)], {"lengths": [1]}, "lengths is 'given'; expected none"),
        (torch.zeros(2, 3), {}, r"the item matrix is 'torch.float32 \(2, 3\)'"),
        (torch.zeros(3, dtype=torch.long), {}, "expected integers, an item per row"),
        (torch.zeros(2, 3, dtype=torch.long), {"lengths": [1, 4]}, "expected 2 numbers of tokens, each from 0 to 3"),
        (torch.zeros(2, 3, dtype=torch.long), {"lengths": [1, 0]}, "item 1 has no tokens"),
        (torch.tensor([[1, 2], [3, 10]]), {}, "item 1 holds token 10"),
        (torch.zeros(0, 3, dtype=torch.long), {}, "the item set is 'empty'"),
    ],
)
def test_what_cannot_be_a_set_is_refused_with_its_place(items, options, why):
    with pytest.raises(BadRequest, match=why):
        ItemSet.of(items, 10, **options)


def test_scores_of_another_shape_are_refused():
    items = ItemSet.of([(0, 1), (0, 2)], 5)
    with pytest.raises(BadRequest, match=r"expected \(2, 5\) on cpu"):
        items.masked(torch.tensor([0, 1]), torch.zeros(2, 6))
    with pytest.raises(BadRequest, match=r"width is 1; expected at least 2"):
        items.candidates(torch.tensor([0, 1]), torch.zeros(2, 5), 1)


def test_a_text_behind_its_item_is_an_error_and_not_a_guess():
    state = Static(ItemSet.of([(0, 1)], 3)).start().step(0).step(1)
    assert not state.mask().any()  # nothing ends a text in this vocabulary
    with pytest.raises(EmptyLaw, match="the constraint leaves no token"):
        _ = Constrained(Static(state.items))(state, Law(torch.zeros(3))).best


# ---- files


def test_a_saved_set_is_the_same(tmp_path):
    items = ItemSet.of([*product(range(5), range(60)), (1, 2, 3)], 70, (69, 68))
    items.save(tmp_path / "items.safetensors")
    again = ItemSet.load(tmp_path / "items.safetensors")
    assert all(torch.equal(getattr(items, name), getattr(again, name)) for name in TENSORS)
    assert (again.vocab, again.levels, again.widths) == (items.vocab, items.levels, items.widths)
    assert [path.name for path in tmp_path.iterdir()] == ["items.safetensors"]


BROKEN = {
    "a list out of order": {"tokens": torch.tensor([1, 0, 2, 3]).int()},
    "a token twice": {"tokens": torch.tensor([0, 1, 2, 2]).int()},
    "a token outside": {"tokens": torch.tensor([0, 1, 2, 9]).int()},
    "a token that ends": {"tokens": torch.tensor([0, 1, 2, 8]).int()},
    "a list of another node": {"first": torch.tensor([0, 2, 2, 4, 4, 4]).int()},
    "a list that goes back": {"first": torch.tensor([0, 2, 1, 4, 4, 4]).int()},
    "a leaf without an end": {"ends": torch.tensor([False, False, True, True, False])},
    "an edge too few": {"tokens": torch.tensor([0, 1, 2]).int()},
    "floats": {"tokens": torch.tensor([0.0, 1.0, 2.0, 3.0])},
    "other levels": {"levels": (1, 1, 3)},
    "another format": {"format": "unspool items 0"},
}


@pytest.mark.parametrize("how", [None, *BROKEN])
def test_a_damaged_file_is_refused(how, tmp_path):
    from safetensors.torch import save_file

    whole = {
        "tokens": torch.tensor([0, 1, 2, 3]).int(),  # items 1, 0·2 and 0·3
        "first": torch.tensor([0, 2, 4, 4, 4, 4]).int(),
        "ends": torch.tensor([False, False, True, True, True]),
        "levels": (1, 2, 2),
        "format": "unspool items 1",
        **BROKEN.get(how, {}),
    }
    tensors = {name: whole[name] for name in ("tokens", "first", "ends")}
    meta = {"format": whole["format"], "vocab": 9, "stops": [8], "levels": whole["levels"]}
    save_file(tensors, tmp_path / "items", {"items": json.dumps(meta)})
    if how is None:
        assert len(ItemSet.load(tmp_path / "items")) == 3
    else:
        with pytest.raises(BadRequest, match=r"items holds no item set: .*ItemSet\.save"):
            ItemSet.load(tmp_path / "items")


def test_what_is_no_file_of_items_is_refused(tmp_path):
    (tmp_path / "text").write_text("no tensors")
    cut = tmp_path / "cut"
    ItemSet.of([(1, 2, 3)], 5).save(cut)
    cut.write_bytes(cut.read_bytes()[:-3])
    for name in ("text", "cut", "missing"):
        with pytest.raises(BadRequest, match=f"{name} holds no item set"):
            ItemSet.load(tmp_path / name)

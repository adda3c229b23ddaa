"""Drafters without a model: each against its brute-force definition, alone, in company, and on the default model."""

import threading
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prompts import PROMPTS
from proposing import answered

from unspool.api.settings import Settings
from unspool.core.asks import Scores
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp import Prefix, Same
from unspool.rules.decode import Speculate
from unspool.rules.draft import (
    BigramRecycling,
    Corpus,
    Lookup,
    NgramLaws,
    Recycle,
    Retrieve,
    Stand,
    Store,
    Successors,
    Suffix,
    SuffixTree,
    SuffixTreeMemory,
    Trigram,
    trigrams,
)
from unspool.rules.draft.automaton import NEST, START, Automaton
from unspool.rules.draft.bigram_recycling import BigramLaws
from unspool.rules.draft.recycle import PATHS
from unspool.rules.draft.retrieve import SuffixArray
from unspool.rules.draft.stand import Few
from unspool.rules.draft.trigram import GAIN, Bent, drawn_rollout
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

VOCAB = 4
texts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=40).map(tuple)
few = settings(max_examples=60, deadline=None)

STORE = Store([(0, 1, 2, 0, 1, 3, 0, 1, 2), (2, 2, 1)])
DRAFTS = {
    "lookup": Lookup(3, 1, 4),
    "suffix": Suffix(),
    "suffix with a corpus": Suffix(corpus=Corpus([(0, 1, 2, 3), (3, 2, 1)])),
    "recycle": Recycle(),
    "suffixtree": SuffixTree(pace=2.0),
    "trigram": Trigram(rounds=24),
    "trigram with a table": Trigram(rounds=24, table=trigrams([(0, 1, 2, 3, 0, 1, 3)])),
    "stand": Stand(orders=(2, 1)),
    "retrieve": Retrieve(STORE, least=1),
}


def proposed(source, text, budget=8, warp=None):
    """The tree that a source proposes after a text, without a model."""
    asking = source.propose(Prefix.of(text, warp or Same()), budget, Philox(1))
    with pytest.raises(StopIteration) as done:
        next(asking)
    return done.value.value


def answer(tree, text):
    """Scores of a small deterministic world: the law depends on the last token alone."""

    def law(token):
        return Law.of([1.0 + (token * 3 + x * 5) % 7 for x in range(VOCAB)])

    return Scores([law(x) for x, _ in tree.drawn], [law(text[-1])])


def told(source, text, cuts, budget=8):
    """The trees of a source that sees a text grow, cut after cut."""
    trees = []
    for cut, then in zip(cuts, [*cuts[1:], len(text)], strict=True):
        trees.append(proposed(source, text[:cut], budget))
        if then > cut:
            source.learn(Prefix.of(text[:then], Same()), trees[-1], answer(trees[-1], text[:cut]))
    return trees


def occurrences(text, piece):
    return [i + len(piece) for i in range(len(text) - len(piece) + 1) if text[i : i + len(piece)] == piece]


def drafted(tree):
    """Tokens and parents: what two trees must share to be the same draft."""
    return tree.tokens(range(len(tree))), tree.parent


def chain(tree):
    assert tree.parent == tuple(range(-1, len(tree) - 1))
    return tree.tokens(range(len(tree)))


# ---- the automaton


@given(st.lists(texts, min_size=1, max_size=3), st.integers(1, 50))
@few
def test_the_automaton_counts_every_piece_of_every_text(several, share):
    automaton = Automaton()
    states = [START] * len(several)
    for begin in range(0, 50, share):  # side by side as requests are, `share` tokens at a time, or one after the other
        for i, text in enumerate(several):
            for end in range(begin, min(begin + share, len(text))):
                states[i] = automaton.add(states[i], text[end], end + 1)
    pieces = {t[i:j] for t in several for i in range(len(t)) for j in range(i + 1, min(len(t), i + 9) + 1)}
    for piece in pieces:
        state, size = automaton.match(piece)
        assert size == len(piece)
        assert automaton.count[state] == sum(len(occurrences(text, piece)) for text in several)
    assert len(automaton) <= 2 * sum(map(len, several))


@given(texts, texts)
@few
def test_a_match_is_the_longest_suffix_that_was_read(text, query):
    automaton, state = Automaton(), START
    for end, token in enumerate(text):
        state = automaton.add(state, token, end + 1)
    longest = max((n for n in range(len(query) + 1) if n == 0 or occurrences(text, query[-n:])), default=0)
    found, size = automaton.match(query)
    assert size == longest
    if longest:
        assert automaton.latest[found] == occurrences(text, query[-longest:])[-1]


def test_a_looping_text_costs_no_more_than_any_other():
    automaton, state = Automaton(), START
    for end in range(1000):
        state = automaton.add(state, 7, end + 1)
    assert len(automaton) <= 2 * 1000
    assert automaton.count[automaton.match([7] * 990)[0]] == 11  # exact up to NEST classes deep
    assert NEST <= automaton.count[automaton.match([7])[0]] < 1000  # beyond it the counts stay behind, and may


# ---- copying


def longest_match(text):
    """Brute force: the longest suffix with an earlier place, and the end of its latest one."""
    for n in range(len(text) - 1, 0, -1):
        if earlier := occurrences(text[:-1], text[-n:]):
            return n, earlier[-1]
    return 0, 0


@given(texts)
@few
def test_suffix_copies_after_the_latest_place_of_the_longest_match(text):
    size, end = longest_match(text)
    want = list(text)
    for i in range(min(6, 1 + 2 * size) if size else 0):
        want.append(want[end + i])  # into its own copy, if need be
    tree = proposed(Suffix(depth=6, pace=2).begin(Prefix.of(text, Same())), text)
    assert chain(tree) == tuple(want[len(text) :])


@given(texts, st.lists(texts, min_size=1, max_size=3))
@few
def test_a_longer_match_in_the_corpus_wins(text, documents):
    rule = Suffix(depth=5, pace=9, corpus=Corpus(documents), bias=1)
    own, _ = longest_match(text)
    far = max(n for n in range(len(text) + 1) if n == 0 or any(occurrences(d, text[-n:]) for d in documents))
    tree = proposed(rule.begin(Prefix.of(text, Same())), text)
    if far - 1 > own:
        after = {d[end : end + 5] for d in documents for end in occurrences(d, text[-far:])}
        assert chain(tree) in after
    else:
        assert drafted(tree) == drafted(proposed(Suffix(depth=5, pace=9).begin(Prefix.of(text, Same())), text))


@given(texts, st.integers(1, 3), st.integers(0, 2))
@few
def test_lookup_copies_after_the_latest_place_of_the_longest_ngram(text, least, more):
    rule = Lookup(least + more, least, 3)
    want = ()
    for n in range(min(rule.ngram, len(text) - 1), least - 1, -1):
        if earlier := occurrences(text[:-1], text[-n:]):
            want = text[earlier[-1] : earlier[-1] + 3]
            break
    assert chain(proposed(rule.begin(Prefix.of(text, Same())), text)) == want


def test_a_loop_is_drafted_whole():
    text = (9, 8, 1, 2, 3, 1, 2, 3, 1)
    source = Suffix(depth=7).begin(Prefix.of(text, Same()))
    assert chain(proposed(source, text)) == (2, 3, 1, 2, 3, 1, 2)


# ---- counting


@given(texts)
@few
def test_suffixtree_draws_the_tree_of_the_best_suffix(text):
    """The score is the largest sum of path probabilities over all suffixes, and paths are as frequent as they say."""
    rule = SuffixTree(pace=1.0, least=0.2)
    best = 0.0
    for n in range(1, len(text)):
        suffix = text[-n:]
        found, level = [], {(): 1.0}
        while level:
            below = {}
            for path, p in level.items():
                after = Counter(text[e] for e in occurrences(text, suffix + path) if e < len(text))
                below |= {(*path, x): p * k / after.total() for x, k in after.items()}
            level = {path: p for path, p in below.items() if p >= 0.2 and len(path) <= 5}
            found += level.values()
        best = max(best, sum(sorted(found, reverse=True)[: min(5, n)]))
    source = rule.begin(Prefix.of(text, Same()))
    tree = proposed(source, text, 5)
    state = max(source.counts.link[source.state], START)
    guess = rule.best(source.counts, state, source.counts.length[state], 5)
    assert drafted(guess.tree) == drafted(tree)
    assert guess.score == pytest.approx(best)


@given(texts)
@few
def test_trigrams_are_a_law_and_gain_weight_where_the_text_goes(text):
    table = trigrams([text])
    for (a, b), row in table.items():
        assert sum(row.values()) == pytest.approx(1.0)
        for c, p in row.items():
            followed = [e for e in occurrences(text, (a, b)) if e < len(text)]
            assert p == pytest.approx(len(occurrences(text, (a, b, c))) / len(followed))
    before = {pair: dict(row) for pair, row in table.items()}
    bent = Bent(Trigram(table=table))
    bent.read(text)
    for (a, b), row in bent.rows.items():
        for c, weight in row.items():
            gained = GAIN * len(occurrences(text, (a, b, c)))
            assert weight == pytest.approx(min(3.0, before.get((a, b), {}).get(c, 0.0) + gained))
    assert table == before  # the shared table itself never changes


@given(texts)
@few
def test_trigram_drafts_only_what_followed_a_pair(text):
    tree = proposed(Trigram(rounds=16).begin(Prefix.of(text, Same())), text)
    for node in range(len(tree)):
        path = (*text[-2:], *tree.tokens(tree.path(node)))
        assert occurrences(text, path[-3:])
        assert tree.depth(node) <= 4


@given(st.lists(texts, max_size=4), texts)
@few
def test_a_store_finds_the_longest_end_and_all_that_followed(documents, tail):
    index = Store(documents).index
    size, after = index.find(tail, 1, 3, 10**6)
    longest = max(
        (n for n in range(len(tail) + 1) if n and any(occurrences(d, tail[-n:]) for d in documents)), default=0
    )
    assert size == min(longest, 32)
    ends = [(d, e) for d in documents for e in occurrences(d, tail[-size:])] if size else []
    assert Counter(map(tuple, after)) == Counter(d[e : e + 3] for d, e in ends)


@given(st.lists(texts, min_size=1, max_size=4))
@few
def test_places_are_sorted_by_what_begins_there(documents):
    index = SuffixArray.of(documents)
    runs = [index.tokens[i : i + 32] for i in index.order]
    assert runs == sorted(runs)
    assert sorted(index.order) == list(range(len(index.tokens)))


@pytest.mark.parametrize(
    "changed",
    [
        {"tokens": torch.tensor([1, -2, 3, -1], dtype=torch.int32)},  # no token is below the border
        {"order": torch.tensor([0, 1], dtype=torch.int32)},
        {"tokens": torch.tensor([1.5, 2.5, 3.5, -1.0])},
        {"order": [0, 1, 2, 3]},
        {"most": 0},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_damaged_store_is_refused(tmp_path, changed):
    file = tmp_path / "store"
    Store([(1, 2, 3)]).save(file)
    assert Store.load(file).texts == [(1, 2, 3)]
    torch.save({**torch.load(file, weights_only=True), **changed}, file)
    with pytest.raises(BadRequest, match="cannot be read as a store"):
        Store.load(file)


def test_a_file_that_is_no_store_is_refused_without_words_about_torch(tmp_path):
    file = tmp_path / "person.json"
    file.write_text('{"type": "object"}')
    with pytest.raises(
        BadRequest, match=r"written by something else\); expected a file made by `unspool store`"
    ) as told:
        Store.load(file)
    assert "weights_only" not in str(told.value)
    with pytest.raises(BadRequest, match=r"\(No such file or directory\)"):
        Store.load(tmp_path / "nothing")


@given(texts, st.integers(1, 9))
@few
def test_retrieval_keeps_the_most_frequent_paths(text, budget):
    tree = proposed(Retrieve(STORE, least=1, depth=3), text, budget)
    worth = Retrieve(STORE, least=1, depth=3).worth(text[-16:])
    chosen = [worth[tree.tokens(tree.path(node))] for node in range(len(tree))]
    assert chosen == sorted(worth.values(), reverse=True)[:budget]


def test_the_project_is_favoured():
    general, project = Store([(1, 2, 3), (1, 2, 3), (1, 2, 4)]), Store([(1, 2, 5)])
    alone = proposed(Retrieve(general), (1, 2), 1)
    both = proposed(Retrieve(general, project, favour=2.0), (1, 2), 1)
    assert (chain(alone), chain(both)) == ((3,), (5,))
    assert proposed(Retrieve(general, project, quiet=frozenset({2})), (1, 2), 1) == NOTHING


def test_a_store_is_saved_and_loaded(tmp_path):
    file = tmp_path / "store.pt"
    STORE.save(file)
    again = Store.load(file)
    assert (again.index, len(again), again.most) == (STORE.index, len(STORE), STORE.most)
    again.add([(3, 3)])
    assert again.index == Store([(0, 1, 2, 0, 1, 3, 0, 1, 2), (2, 2, 1), (3, 3)]).index
    file.write_text("not a store")
    with pytest.raises(BadRequest, match=r"by Store\.save"):
        Store.load(file)


# ---- learning from scores


def test_recycling_fills_the_template_with_what_the_target_preferred():
    source = Recycle(width=2).begin(Prefix.of((0,), Same()))
    assert proposed(source, (0,)) == NOTHING
    source.learn(Prefix.of((0, 1), Same()), NOTHING, Scores([], [Law.of([1, 8, 5, 2])]))
    assert proposed(source, (0, 1)) == NOTHING
    source.learn(Prefix.of((0, 1, 0), Same()), NOTHING, Scores([], [Law.of([9, 2, 1, 8])]))
    assert source.rows.after(1) == (0, 3)
    tree = proposed(source, (0, 1, 0))
    assert [tree.drawn[kid].token for kid in tree.kids(ROOT)] == [1, 2]
    source.learn(Prefix.of((0, 1, 0, 1), Same()), tree, answer(tree, (0, 1, 0)))
    for token, law in zip((x for x, _ in tree.drawn), answer(tree, (0, 1, 0)).after, strict=True):
        assert source.rows.after(token) == tuple(law.top(2))
    assert source.rows.after(0) == tuple(answer(tree, (0,)).leaf[0].top(2))


@pytest.mark.parametrize("draft", [Recycle(), Stand(orders=(1,)), SuffixTree(shared=SuffixTreeMemory())])
def test_a_source_learns_also_from_rounds_in_which_it_was_not_asked(draft):
    """Joined drafters are told of every round, whoever drafted."""
    asked, told_only = (draft.begin(Prefix.of((0, 1), Same())) for _ in range(2))
    for text, then in (((0, 1), (0, 1, 2)), ((0, 1, 2), (0, 1, 2, 0, 1)), ((0, 1, 2, 0, 1), (0, 1, 2, 0, 1, 1))):
        proposed(asked, text)
        for source in (asked, told_only):
            source.learn(Prefix.of(then, Same()), NOTHING, Scores([], answer(NOTHING, text).leaf))
    end = (0, 1, 2, 0, 1, 1)
    assert len(proposed(asked, end)) > 0
    assert drafted(proposed(told_only, end)) == drafted(proposed(asked, end))


def test_the_template_is_the_paper_s():
    assert len(PATHS) == 80
    assert Counter(map(len, PATHS)) == {1: 8, 2: 21, 3: 25, 4: 15, 5: 8, 6: 3}
    for i, path in enumerate(PATHS):
        assert len(path) == 1 or path[:-1] in PATHS[:i]


@given(st.lists(st.tuples(*[st.integers(0, 5)] * VOCAB).filter(any), min_size=1, max_size=6))
@few
def test_a_running_mean_is_the_mean(rows):
    grams = NgramLaws((2,), width=VOCAB)
    for row in rows:
        grams.see((1, 2), {x: w / sum(row) for x, w in enumerate(row) if w})
    mean = grams.after((0, 1, 2))
    for x in range(VOCAB):
        assert mean.get(x, 0.0) == pytest.approx(sum(row[x] / sum(row) for row in rows) / len(rows))


def test_stand_draws_different_siblings_from_laws_that_shrink():
    grams = NgramLaws((1,))
    grams.see((0,), {1: 0.5, 2: 0.3, 3: 0.2})
    tree = proposed(Stand((3,), (1,), grams).begin(Prefix.of((0,), Same())), (0,))
    kids = [tree.drawn[kid] for kid in tree.kids(ROOT)]
    assert sorted(x for x, _ in kids) == [1, 2, 3]
    left = {1: 0.5, 2: 0.3, 3: 0.2}
    for x, law in kids:
        for token in range(VOCAB):
            assert law[token] == pytest.approx(left.get(token, 0.0) / sum(left.values()))
        del left[x]


def test_a_law_over_few_tokens_is_a_law():
    like = Law.of([1.0] * VOCAB)
    law, dense = Few({2: 3.0, 0: 1.0, 3: 0.0}, like), Law.of([1.0, 0.0, 3.0, 0.0])
    assert law.steps == dense.steps
    assert torch.equal(law.spread(like), dense.p)
    assert torch.allclose(law.p, dense.p, atol=1e-15)
    assert law.best == dense.best == 2
    assert [law.invert(u) for u in (0.0, 0.24, 0.26, 0.999)] == [0, 0, 2, 2]
    assert law.without(2).without(0).is_empty()


# ---- what holds for all


@pytest.mark.parametrize("name", DRAFTS)
@given(text=texts, budget=st.integers(0, 9), data=st.data())
@settings(max_examples=25, deadline=None)
def test_budgets_are_kept_and_siblings_differ(name, text, budget, data):
    source = DRAFTS[name].begin(Prefix.of(text[:1], Same()))
    cuts = sorted({1, *data.draw(st.lists(st.integers(1, len(text)), max_size=4)), len(text)})
    for tree in told(source, text, cuts, budget):
        assert len(tree) <= budget
        for node in [ROOT, *range(len(tree))]:
            tokens = tree.tokens(tree.kids(node))
            assert len(set(tokens)) == len(tokens)


@pytest.mark.parametrize("name", ["lookup", "suffix", "suffix with a corpus", "suffixtree", "retrieve"])
@given(text=texts, data=st.data())
@settings(max_examples=25, deadline=None)
def test_reading_bit_by_bit_is_reading_at_once(name, text, data):
    cuts = sorted({1, *data.draw(st.lists(st.integers(1, len(text)), max_size=6)), len(text)})
    grown = told(DRAFTS[name].begin(Prefix.of(text[:1], Same())), text, cuts)[-1]
    fresh = proposed(DRAFTS[name].begin(Prefix.of(text, Same())), text)
    assert drafted(grown) == drafted(fresh)


@pytest.mark.parametrize("name", DRAFTS)
def test_requests_of_one_drafter_know_nothing_of_each_other(name):
    mine, other = (0, 1, 2, 0, 1, 3, 0, 1), (1, 0, 3, 3, 1, 0, 3, 1, 0)
    rule, cuts = DRAFTS[name], [1, 3, 4, 6, 8]
    alone = told(rule.begin(Prefix.of(mine[:1], Same())), mine, cuts)
    source, second = (rule.begin(Prefix.of(text[:1], Same())) for text in (mine, other))
    told(second, other, [1, 4, 5, 9])
    assert list(map(drafted, told(source, mine, cuts))) == list(map(drafted, alone))


def hammered(*jobs):
    """Run jobs in threads at the same time and raise what any of them raised."""
    failed = []

    def guarded(job):
        try:
            job()
        except BaseException as error:  # whatever it is, the test must see it
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.parametrize(
    ("rule", "store", "most"),
    [
        (lambda s: SuffixTree(shared=s), lambda: SuffixTreeMemory(64), 2 * 64 + 2),
        (lambda s: Recycle(shared=s), lambda: Successors(4, most=3), 3),
        (lambda s: BigramRecycling(shared=s), lambda: BigramLaws(4, most=9), 9),
        (lambda s: Stand(orders=(3, 2, 1), shared=s), lambda: NgramLaws((3, 2, 1), most=20), 20),
    ],
)
def test_shared_memories_stay_bounded_under_many_threads(rule, store, most):
    shared = store()

    def write(seed):
        def job():
            text = tuple((seed * i * i + i // 3) % VOCAB for i in range(120))
            told(rule(shared).begin(Prefix.of(text[:2], Same())), text, list(range(2, 120, 3)))

        return job

    hammered(*map(write, range(6)))
    assert 0 < len(shared) <= most


def test_a_store_is_bounded_and_read_while_it_is_written():
    store = Store(most=50)

    def write():
        for i in range(30):
            store.add([(i % VOCAB, 1, 2, 3) * 2])
            assert len(store) <= 50

    def read():
        for i in range(200):
            proposed(Retrieve(store, least=1), (i % VOCAB, 1, 2))

    hammered(write, write, read, read)
    store.add([range(1000)])
    assert list(store.index.tokens) == [*range(950, 1000), -1]


def test_what_one_request_wrote_another_drafts():
    memory, text = SuffixTreeMemory(), (5, 6, 7, 8, 9, 5, 6, 7, 8, 9, 1, 2, 3)
    told(SuffixTree(shared=memory).begin(Prefix.of(text[:1], Same())), text, [1, 5, 9, 12])
    fresh = SuffixTree(shared=memory, pace=1.0).begin(Prefix.of((4, 6, 7), Same()))
    assert chain(proposed(fresh, (4, 6, 7))) == (8, 9)
    assert proposed(SuffixTree().begin(Prefix.of((4, 6, 7), Same())), (4, 6, 7)) == NOTHING


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Suffix(depth=0),
        lambda: SuffixTree(pace=0.0),
        lambda: Trigram(rounds=0),
        lambda: Stand(widths=()),
        lambda: Retrieve(STORE, least=3, span=2),
        lambda: Store(most=0),
        lambda: SuffixTreeMemory(1),
        lambda: Successors(0),
        lambda: NgramLaws(()),
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong):
    with pytest.raises(BadRequest, match="cannot be used; expected"):
        wrong()


# ---- the default model


def chat(prompt):
    return [{"role": "user", "content": prompt}]


LATER = ("suffix", "suffixtree", "trigram", "stand", "retrieve")


@pytest.fixture(scope="module")
def slow(smollm2):
    """Plain greedy texts of two prompts."""
    return [o.tokens for o in smollm2.batch([chat(PROMPTS[9]), chat(PROMPTS[15])], Settings(max_tokens=20))]


@pytest.mark.parametrize("name", ["lookup", "recycle", *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)])
def test_greedy_text_is_that_of_plain_decoding(smollm2, slow, name):
    method = Speculate(Retrieve(Store(slow))) if name == "retrieve" else name
    outputs = smollm2.batch([chat(PROMPTS[9]), chat(PROMPTS[15])], Settings(max_tokens=20), method)
    assert [output.tokens for output in outputs] == slow
    assert sum(output.trace.forwards["target"] for output in outputs) < sum(map(len, slow))


def test_drawn_trees_work_at_a_temperature(smollm2):
    options = Settings(temperature=0.7, top_p=0.9, seed=5, max_tokens=12)
    output = smollm2.generate(chat(PROMPTS[9]), options, Speculate(Stand(), rejection, 12))
    assert output.trace.accepted_tokens > 0


def test_rollouts_may_be_drawn_and_leaves_go_on_with_what_most_likely_follows():
    table = trigrams([(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 3, 0)])
    prefix = Prefix.of((0, 1), Same())
    plain = proposed(Trigram(4, 12, table).begin(prefix), prefix.text, 5)
    longer = proposed(Trigram(4, 12, table, extended=3).begin(prefix), prefix.text, 5)
    assert len(longer) <= 5
    kept = {longer.tokens(longer.path(node)) for node in range(len(longer))}
    assert {plain.tokens(plain.path(node)) for node in range(2)} <= kept  # what was visited most is there first
    for path in kept:  # and what hangs below a leaf is its likeliest successor
        pair = (0, 1, *path)[-3:-1]
        assert path[-1] in table[pair]
    asked = []

    class Noted(Philox):
        def choose(self, law, at):
            asked.append(at)
            return super().choose(law, at)

    source = Trigram(4, 12, table, drawn_rollout).begin(prefix)
    answered(source.propose(prefix, 5, Noted(0)), None)
    assert asked
    assert len(set(asked)) == len(asked)  # no number twice


def test_what_the_target_said_after_a_token_is_drafted_after_it():
    """0 1 2 0 1 2 …, of which the prompt shows nothing: all that is drafted was learnt while writing."""
    model = Table(3, lambda text: [1.0 if x == (text[-1] + 1) % 3 else 0.0 for x in range(3)])
    engine = Engine({"target": model})
    job = engine.submit(Speculate(Stand((1,), (1,)), rejection), (0,), Philox(1), Same(), Stop(most=12))
    engine.run()
    assert job.result().tokens == (1, 2, 0) * 4
    assert job.trace.drafted == job.trace.accepted_tokens > 0


def test_the_longest_known_ngram_tells_what_follows():
    grams = NgramLaws((1, 2))
    grams.see((5, 1), {7: 1.0})
    grams.see((6, 1), {8: 1.0})
    assert grams.after((5, 1)) == {7: 1.0}
    assert grams.after((6, 1)) == {8: 1.0}
    assert grams.after((4, 1)) == {7: 0.5, 8: 0.5}  # nobody has seen 4 1, but 1

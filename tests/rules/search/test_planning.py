"""Searches for what a function wants: planning, lexical search with lookahead, and templates."""

import math
from dataclasses import replace

import pytest
import torch
from letters import Letters
from listed import Listed
from toy import Toy, logits_of

from unspool.core.asks import Done
from unspool.core.chance import Philox
from unspool.core.claim import ARGMAX
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.core.warp import BadWords, Forbid, LogitBias, NoRepeatNgram, Same, Temperature
from unspool.proof import prove
from unspool.recipes.methods import method as named
from unspool.rules.constrain import Constrained, Sentinels, choices, keywords, predicate
from unspool.rules.decode import Template
from unspool.rules.decode.template import Word
from unspool.rules.search import Beam, Mcts, Neurologic, Smc
from unspool.rules.search.ahead import Beamed, Greedy, Sampled, WatchedChains, outlook
from unspool.rules.search.beam_cache import BeamCache
from unspool.rules.search.length_norm import Power
from unspool.rules.search.search_text import Text
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine

PROMPT = (0,)


def table(vocab=3, salt=0):
    def weights(text):
        generator = torch.Generator().manual_seed(hash((salt, *text)) & 0x7FFFFFFF)
        return (torch.rand(vocab, generator=generator, dtype=torch.float64) + 0.05).tolist()

    return Table(vocab, weights)


def letters(**more):
    """A stop over tokens that are spelt a, b, c …"""
    return Stop(piece=lambda token: bytes([97 + token]), **more)


def done(method, model, stop, warp=None, prompt=PROMPT):
    engine = Engine({"target": model})
    job = engine.submit(method, prompt, Philox(0), warp or Same(), stop)
    engine.run()
    return job.result()


# ---- planning


def test_one_kid_or_one_rollout_is_greedy_and_one_rollout_of_beams_is_beam_search():
    assert prove(Mcts(kids=1, rollouts=5), ARGMAX, quick=True).ok
    assert prove(Mcts(kids=3, rollouts=1), ARGMAX, quick=True).ok
    stop = letters(tokens=frozenset({2}), most=5)
    for salt in range(8):
        assert done(Mcts(rollouts=1, width=3), table(salt=salt), stop) == done(Beam(3), table(salt=salt), stop)


@pytest.mark.parametrize("wanted", ["aab", "bca", "ccc"])
def test_planning_finds_the_text_that_a_reward_wants(wanted):
    """A hidden word, rewarded letter by letter; greedy decoding writes another."""
    model, stop, asked = table(salt=4), letters(most=3), []

    def reward(text):
        asked.append(text)
        return next((i for i in range(3) if text[i] != wanted[i]), 3) / 3

    seen = []
    planned = Mcts(reward, kids=3, rollouts=200, enough=1.0, rows=0, watch=seen.extend)
    got = done(planned, model, stop)
    assert bytes(97 + x for x in got.tokens).decode() == wanted
    assert len(asked) == len(set(asked))  # once for every text
    assert [text.score for text in seen] == sorted((text.score for text in seen), reverse=True)
    assert seen[0].score == 1.0
    assert len(seen) < 27  # it stopped as soon as it had it


def test_the_best_reward_never_falls_with_more_rollouts():
    model, stop = table(vocab=4, salt=1), letters(most=5)

    def reward(text):
        return (sum(map(ord, text)) * 7919 % 101) / 101

    def best(rollouts):
        seen = []
        done(Mcts(reward, rollouts=rollouts, rows=0, watch=seen.extend), model, stop)
        return seen[0].score

    found = [best(count) for count in (1, 3, 9, 27, 81)]
    assert found == sorted(found)
    assert found[-1] > found[0]


@pytest.mark.parametrize("worth", [(0.2, 0.5), (-3.0, -1.0)])
def test_p_ucb_by_hand(worth):
    """Two tokens with priors 0.6 and 0.4: the order in which they are tried, worked out from the formula."""
    model, stop = Table(2, lambda text: (6, 4)), letters(most=1)
    order, rewards = [], dict(zip("ab", worth, strict=True))
    q, n, visits = [0.0, 0.0], [0, 0], 1
    for _ in range(30):
        keen = math.log((visits + 11) / 10) + 4
        bounds = [q[a] + keen * (0.6, 0.4)[a] * math.sqrt(math.log(visits)) / (1 + n[a]) for a in (0, 1)]
        a = bounds.index(max(bounds))
        order.append(a)
        q[a], n[a], visits = worth[a], n[a] + 1, visits + 1

    tried = []
    planned = Mcts(rewards.__getitem__, kids=2, rollouts=31)
    real = Mcts._bound

    def spying(self, node, kid):
        if kid is node.kids[-1]:
            bounds = [real(self, node, one) for one in node.kids]
            tried.append(bounds.index(max(bounds)))
        return real(self, node, kid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mcts, "_bound", spying)
        done(planned, model, stop)
    assert tried == order
    assert set(order) == {0, 1}


def test_what_was_written_before_costs_nothing_to_write_again():
    toy, stop = Toy(vocab=4, room=400), letters(most=6)
    got = done(Mcts(lambda text: 0.0, kids=1, rollouts=50), CachedModel(toy), stop)
    assert toy.computed == 6  # one row for each token, and none for 49 rollouts along the same way
    assert toy.slots.in_use == 0
    alone = Table(4, lambda text: logits_of(text, 4).exp().tolist())
    assert got == done(Beam(1), alone, stop)
    for width in (1, 2):  # and a real cache gives the same plan as a table
        planned = Mcts(lambda text: text.count("b") / 6, rollouts=30, width=width)
        toy = Toy(vocab=4, room=2000)
        assert done(planned, CachedModel(toy), stop) == done(planned, alone, stop)
        assert toy.slots.in_use == 0


def test_planning_stays_within_a_constraint_and_past_dead_ends():
    language = frozenset({(0, 0, 2), (1, 2), (1, 1, 2)})
    stop = letters(tokens=frozenset({2}), most=4)
    seen = []
    planned = Mcts(lambda text: len(text) / 3, rollouts=40, watch=seen.extend)
    got = done(planned, table(salt=3), stop, warp=Constrained(Listed(language, 3)) | Temperature(0))
    assert {text.tokens for text in seen} == language
    assert len(got.tokens) == 3


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (lambda text: 1 / 0, r"raised ZeroDivisionError: division by zero, on the text 'a"),
        (lambda text: math.nan, r"gave nan for the text 'a.*expected a number"),
        (lambda text: math.inf, "gave inf"),
        (lambda text: None, "gave None"),
        (lambda text: "good", "gave 'good'"),
    ],
)
def test_a_reward_that_cannot_be_used(reward, message):
    model = Table(2, lambda text: (3, 1))
    with pytest.raises(BadRequest, match=message):
        done(Mcts(reward, rollouts=3), model, letters(most=2))


def test_planning_by_name(tmp_path):
    file = tmp_path / "grade.py"
    file.write_text("def passed(text):\n    return text == 'bb'\n\nnumber = 3\n")
    planned = named(f"mcts:kids=2,rollouts=40,reward={file}:passed,enough=1,rows=500")
    assert done(planned, table(vocab=2, salt=2), letters(most=2)).tokens == (1, 1)
    for spec, message in [
        (f"mcts:reward={file}:failed", "has no 'failed'; it has: passed"),
        (f"mcts:reward={file}:number", "expected a function from a text to a number"),
        ("mcts:reward=nowhere.py:f", "there is no such file"),
        ("mcts:rollouts=0", "mcts:rollouts is 0"),
        ("mcts:kids=0", "mcts:kids is 0"),
        ("mcts:base=0", "mcts:base is 0"),
    ]:
        with pytest.raises(BadRequest, match=message):
            named(spec)
    with pytest.raises(BadRequest, match="a reward reads text"):
        done(Mcts(len), table(), Stop(most=2))


# ---- lexical search with a look ahead

WORDS = Letters(("a", "b", "c", "d", " "), controls=0, ends=1)
END = 5


def spelling(most):
    return Stop(tokens=frozenset({END}), most=most, piece=WORDS.piece)


def must(*clauses):
    return Constrained(keywords(*clauses).fit(WORDS))


@pytest.mark.parametrize("salt", range(6))
def test_without_keywords_it_is_beam_search(salt):
    model, stop = table(vocab=6, salt=salt), spelling(5)
    for width in (1, 3):
        plain = done(Beam(width, Power(0.2)), model, stop)
        assert done(Neurologic(width), model, stop) == plain
        assert done(Neurologic(width), model, stop, warp=Temperature(0)) == plain


@pytest.mark.parametrize("ahead", [Greedy(0), Greedy(1), Greedy(3), Beamed(3, 2), Sampled(3, 2, 2)], ids=str)
def test_whatever_ends_has_said_everything(ahead):
    assert sum(map(bool, (finished(ahead, salt) for salt in range(4)))) >= 2


def test_more_is_finished_with_a_look_ahead():
    assert all(finished(Greedy(3), salt) for salt in range(4))
    assert not all(finished(Greedy(0), salt) for salt in range(4))


def finished(ahead, salt):
    """The texts that ended by themselves, in a model that would rather end at once."""
    seen = []
    model = Table(6, lambda text: rows_of(text, 6, salt, end=3.0))
    done(Neurologic(3, ahead, watch=seen.extend), model, spelling(9), warp=must(("ab", "ba"), "cd"))
    ended = [WORDS.decode(text.tokens) for text in seen if text.reason == "token"]
    for text in ended:
        assert "cd" in text
        assert "ab" in text or "ba" in text
    return ended


def rows_of(text, vocab, salt, end=1.0):
    generator = torch.Generator().manual_seed(hash((salt, *text)) & 0x7FFFFFFF)
    row = (torch.rand(vocab, generator=generator, dtype=torch.float64) + 0.05).tolist()
    return [*row[:-1], row[-1] * end]


def test_no_look_ahead_or_no_weight_on_it_is_neurologic_decoding():
    for salt in range(4):
        model, stop, warp = table(vocab=6, salt=salt), spelling(7), must("ab", "cd")
        assert done(Neurologic(3, Greedy(0)), model, stop, warp=warp) == done(
            Neurologic(3, alpha=0.0), model, stop, warp=warp
        )


AB = (6, 7)  # tables for which a search for "cd" and "b" writes "ab" too


def test_what_is_forbidden_never_appears():
    for salt in AB:
        seen, free = [], []
        model = table(vocab=6, salt=salt)
        done(Neurologic(3, watch=free.extend), model, spelling(8), warp=must("cd", "b"))
        assert any("ab" in WORDS.decode(text.tokens) for text in free), "nothing is forbidden that would be written"
        done(Neurologic(3, watch=seen.extend), model, spelling(8), warp=BadWords(((0, 1),)) | must("cd", "b"))
        assert seen
        assert not any("ab" in WORDS.decode(text.tokens) for text in seen)


def test_a_negative_clause_is_never_written_and_the_others_are():
    seen = []
    made = replace(named("neurologic:words=cd+b+!ab,width=3"), watch=seen.extend).fit(WORDS)
    for salt in AB:
        done(made, table(vocab=6, salt=salt), spelling(8))
    texts = [WORDS.decode(text.tokens) for text in seen if text.reason == "token"]
    assert texts
    assert not any("ab" in WORDS.decode(text.tokens) for text in seen)
    assert all("cd" in text and "b" in text for text in texts)


def test_a_negative_clause_stands_alone_and_needs_a_vocabulary():
    with pytest.raises(BadRequest, match=r"dog/!cat.*expected what is never to be written in a clause of its own"):
        named("neurologic:words=dog/!cat")
    with pytest.raises(BadRequest, match="fitted to a vocabulary"):
        done(named("neurologic:words=!ab"), table(vocab=6), spelling(4))


def test_the_outlook_by_hand():
    """h = max over places and phrases of the mean log p of a phrase's tokens, against the table itself."""
    model, stop = table(vocab=6, salt=3), spelling(9)
    text = Text.begin(PROMPT, Same(), stop)
    chains = ((2, 3), (1,))

    def logp(tokens, chain):
        place = [math.log(model.law((*PROMPT, *tokens, *chain[:j]))[x]) for j, x in enumerate(chain)]
        return sum(place) / len(place)

    def seen(ahead, now=()):
        def decoder(*_):
            grove = BeamCache()
            best = yield from outlook(grove, [WatchedChains(text, now, chains)], ahead, Philox(0), stop)
            found.extend(best)
            return Done((), "seen")

        found = []
        done(decoder, model, stop)
        return found[0]

    ways = [()]
    for _ in range(3):
        ways.append((*ways[-1], model.law((*PROMPT, *ways[-1])).best))
    for steps in (1, 2, 3):
        truth = max(logp(way, chain) for way in ways[:steps] for chain in chains)
        assert seen(Greedy(steps)) == pytest.approx(truth, abs=1e-12)
    assert seen(Greedy(1), now=((0,),)) == pytest.approx(max(logp((), (0,)), seen(Greedy(1))), abs=1e-12)
    assert seen(Beamed(3, 1)) == pytest.approx(seen(Greedy(3)), abs=1e-12)
    assert seen(Sampled(3, 1, 1)) == pytest.approx(seen(Greedy(3)), abs=1e-12)
    assert seen(Beamed(3, 6)) >= seen(Greedy(3))


def test_a_look_ahead_takes_the_way_on_which_the_word_will_come():
    """After b the word "cd" comes by itself, after a hardly ever; a is likelier now."""

    def weights(text):
        if text == PROMPT:
            return (6, 4, 0.001, 0.001, 0.001, 0.1)
        if 1 in text:
            return (1, 1, 5, 50 if text[-1] == 2 else 0.1, 1, 1)
        return (5, 0.001, 0.001, 0.001, 5, 1)

    model, stop, warp = Table(6, weights), spelling(4), must("cd")
    without = done(Neurologic(1, Greedy(0), prune=1), model, stop, warp=warp)
    assert WORDS.decode(without.tokens)[0] == "a"
    ahead = done(Neurologic(1, Greedy(2), alpha=0.5, prune=2), model, stop, warp=warp)
    assert WORDS.decode(ahead.tokens)[:1] == "b"
    assert "cd" in WORDS.decode(ahead.tokens)


def test_lexical_search_inside_a_real_cache_and_within_a_budget():
    stop, warp = spelling(8), must(("ab", "ba"), "cd")
    alone = Table(6, lambda text: logits_of(text, 6).exp().tolist())
    for ahead in (Greedy(3), Beamed(2, 2), Sampled(2, 2, 2)):
        toy = Toy(vocab=6, room=3000)
        assert done(Neurologic(2, ahead), CachedModel(toy), stop, warp=warp) == done(
            Neurologic(2, ahead), alone, stop, warp=warp
        )
        assert toy.slots.in_use == 0
    for rows in (1, 9, 40, 150):
        toy = Toy(vocab=6, room=3000)
        got = done(Neurologic(2, rows=rows), CachedModel(toy), stop, warp=warp, prompt=(0, 1, 2))
        assert got.tokens
        assert toy.computed <= rows + 2


def test_a_predicate_that_raises_is_named_with_the_text_it_failed_on():
    def picky(text):
        return "abcd".index(text) >= 0

    for method in (Beam(2), Mcts(rollouts=3), Smc(2)):
        with pytest.raises(BadRequest, match="the predicate picky raised ValueError: substring not found, on the text"):
            done(method, table(vocab=6), spelling(4), warp=Constrained(predicate(picky).fit(WORDS)))


def test_lexical_search_by_name():
    search = named("neurologic:width=3,ahead=sample,steps=2,alpha=0.3,rows=90")
    assert search == Neurologic(3, Sampled(2), 0.3, rows=90)
    worded = named("neurologic:words=ab/ba+cd,width=2,steps=3").fit(WORDS)
    model, stop = table(vocab=6, salt=1), spelling(8)
    asked = done(Neurologic(2, Greedy(3)), model, stop, warp=must(("ab", "ba"), "cd"))
    assert done(worded, model, stop, warp=Temperature(0)) == asked
    with pytest.raises(BadRequest, match="a clause of keywords"):
        named("neurologic:words=ab++cd")
    with pytest.raises(BadRequest, match="neurologic:ahead is 'soft'; expected one of greedy, beam, sample"):
        named("neurologic:ahead=soft")
    with pytest.raises(BadRequest, match="neurologic searches for keywords"):
        done(Neurologic(), table(vocab=6), spelling(3), warp=Constrained(choices("ab", "cd").fit(WORDS)))


# ---- templates


@pytest.mark.parametrize("salt", range(6))
def test_every_word_of_a_template_stands_in_the_text_in_its_order(salt):
    template = Template(("ab", "d", "cc"), 3).fit(WORDS)
    for most in (8, 10, 20):
        model = Table(6, lambda text: rows_of(text, 6, salt, end=2.0))
        for chance in (Philox(0), Philox(1)):
            engine = Engine({"target": model})
            job = engine.submit(template, PROMPT, chance, Same(), spelling(most))
            engine.run()
            text = WORDS.decode(job.result().tokens)
            assert len(job.result().tokens) <= most
            first = text.index("ab")
            second = text.index("d", first + 2)
            assert text.index("cc", second + 1) > second


def test_a_word_that_the_model_writes_itself_is_not_copied_again():
    words = {0: 0, 1: 1}  # a, b, then it ends
    model = Table(6, lambda text: [float(x == words.get(len(text) - 1, END)) for x in range(6)])
    assert done(Template(("ab",)).fit(WORDS), model, spelling(9)).tokens == (0, 1, END)
    got = done(Template(("ab", "ab")).fit(WORDS), model, spelling(9)).tokens
    assert WORDS.decode(got) == "ab ab"
    assert WORDS.decode(done(Template(("cb", "b")).fit(WORDS), model, spelling(9)).tokens) == "ab cb b"


FORBIDDING = LogitBias({1: -math.inf}), BadWords(((1,),)), NoRepeatNgram(1), Forbid((1,))


@pytest.mark.parametrize("warp", FORBIDDING, ids=lambda warp: type(warp).__name__)
def test_a_word_that_is_forbidden_is_not_copied(warp):
    model = table(vocab=6)
    engine = Engine({"target": model})
    for seed in range(5):
        job = engine.submit(Template(("b",), 2).fit(WORDS), (0, 1), Philox(seed), warp, spelling(5))
        engine.run()
        assert 1 not in job.result().tokens
        assert "words of the template: b" in job.result().note


def test_a_word_waits_until_nothing_forbids_it():
    """b may not follow a, which the model writes first; it ends the text after each c."""
    model = Table(6, lambda text: [float(x == {1: 0, 2: 2}.get(len(text), END)) for x in range(6)])
    b = Word(b"b", (1,), (1,))
    assert done(Template((b,), 1), model, spelling(9)).tokens == (0, 1, END)
    assert done(Template((b,), 1), model, spelling(9), warp=BadWords(((0, 1),))).tokens == (0, 2, 1, END)


def test_a_template_that_cannot_be_filled():
    with pytest.raises(BadRequest, match="7 tokens, but only 6 may be written"):
        done(Template(("abcdab",)).fit(WORDS), table(vocab=6), spelling(6))
    with pytest.raises(BadRequest, match="has to know the tokens"):
        done(Template(("ab",)), table(vocab=6), spelling(6))
    with pytest.raises(BadRequest, match="template:words is"):
        named("template:words=ab++cd")


def test_sentinels_are_written_in_order_whatever_the_model_is():
    words = Letters((*"abcxyz <>0123", "ab", "<x"), controls=0, ends=1)
    form = Sentinels(("cab", "bac"), "<x{}>")
    assert form.source("a document") == "TL;DR:<x0> cab<x1> bac<x2> | a document"
    assert form.filled("<x0> a <x1>b<x2><x3>") == "a cab b bac"
    assert Sentinels((), "<x{}>").filled("<x0>a b<x1>") == "a b"
    stop = Stop(tokens=words.eos, most=200, piece=words.piece)
    after = {7: (3,), 3: (9, 10, 11, 12), 14: (9, 10, 11, 12), **dict.fromkeys((9, 10, 11, 12), (8,))}
    model = Table(words.size, lambda text: [1.0 + 40 * (x in after.get(text[-1], (7,))) for x in range(words.size)])
    constraint = Constrained(form.fit(words))
    ended = 0
    for seed in range(12):
        engine = Engine({"target": model})
        job = engine.submit(named("plain"), PROMPT, Philox(seed), constraint, stop)
        engine.run()
        answer = words.decode(job.result().tokens)
        assert answer.startswith("<x0>")
        if job.result().reason == "token":
            ended += 1
            text = form.filled(answer)
            assert text.index("bac", text.index("cab") + 3) > 0
    assert ended > 3
    assert form.fit(words).start().step(words.encode("<x")[0]).allows(words.encode("0")[0])
    with pytest.raises(BadRequest, match="mark is '<x>'"):
        Sentinels(("a",), "<x>")

"""What is kept is what was written: by every model, for one prompt alone, and past the end of every table."""

from dataclasses import dataclass

import pytest
import torch
from littlemodel import little_model, loaded
from toy import Toy, logits_of

from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp import Same
from unspool.loops.speculate import Speculate
from unspool.rules.draft import Chain, Memoryless
from unspool.rules.verify import rejection
from unspool.runtime.cache import sequence as beginnings
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network import attention as rotary
from unspool.runtime.network.attention import FIRST_ROWS, Rotary
from unspool.runtime.network.quantised import Int4Linear, Int8Linear

# ---- a draft model keeps up while its source rests


@dataclass(frozen=True)
class Sleepy(Memoryless):
    """A chain that rests for two tokens out of five."""

    def rest(self, prefix):
        return 2 if len(prefix) % 5 == 0 else 0

    def propose(self, prefix, budget, chance):
        return (yield from Chain(2).propose(prefix, budget, chance))


def test_the_draft_model_has_read_what_was_written_while_its_source_rested():
    models = {name: CachedModel(Toy(vocab=4, room=400)) for name in ("target", "draft")}
    engine = Engine(models)
    job = engine.submit(Speculate(Sleepy(), rejection), (0, 1, 2), Philox(3), Same(), Stop(most=30))
    rested = 0
    while engine.step():
        texts = {name: session.leaves[0].tokens for name, session in job.sessions.items()}
        if texts:
            assert texts["draft"] == texts["target"]
    assert len(job.result().tokens) == 30
    rested = job.trace.rounds - sum(emit.drafted > 0 for emit in job.emitted)
    assert 0 < rested < job.trace.rounds


# ---- prompts that only look alike


@pytest.mark.parametrize("key", [lambda pair: 7, lambda pair: pair[1] % 2, lambda pair: (pair[0] + 1) % 1000])
def test_two_beginnings_with_one_hash_share_nothing(monkeypatch, key):
    """Whoever finds two prompts with equal hashes must not read another's keys."""
    monkeypatch.setattr(beginnings, "hash", key, raising=False)
    model = CachedModel(Toy(vocab=9, room=400), prefix_cache=4)
    texts = [(1, 2, 3, 4, 5, 6), (3, 4, 5, 6, 7, 8), (1, 2, 3, 6, 5, 4), (1, 2, 3, 4, 5, 6, 7, 8), (5, 5, 5, 5)]
    held = []
    for text in texts * 2:
        session = model.open(text)
        (leaf,) = session.leaves
        shared = leaf.slots
        keys, places = model.slots.read(0, shared) if shared else (torch.zeros(0), torch.zeros(0))
        assert keys.flatten().tolist() == list(text[: len(shared)])
        assert places.flatten().tolist() == list(range(len(shared)))
        (scores,) = model.score([ScoreRequest(session, NOTHING)])
        torch.testing.assert_close(scores.leaf[0].scores, logits_of(text, 9))
        held.append(session)
        if len(held) > 3:
            held.pop(0).close()


def test_a_beginning_that_is_the_same_is_shared():
    """Else the tests above would hold for an index that finds nothing."""
    model = CachedModel(Toy(vocab=9, room=400))
    first = model.open((1, 2, 3, 4))
    model.score([ScoreRequest(first, NOTHING)])
    (leaf,) = model.open((1, 2, 3, 5, 6)).leaves
    assert leaf.slots == first.leaves[0].slots[:3]


@pytest.mark.parametrize("equal", [False, True])
def test_a_beginning_that_somebody_else_owns_is_not(monkeypatch, equal):
    """Not by an open text, a forked or a closed one, nor if the hashes of two owners are the same."""
    if equal:
        monkeypatch.setattr(beginnings, "_start", lambda owner: 0)
    model = CachedModel(Toy(vocab=9, room=400), prefix_cache=4)
    text = (1, 2, 3, 4)
    first = model.open(text, "anna")
    model.score([ScoreRequest(first, NOTHING)])
    forked = first.fork()
    forked.keep(NOTHING, (ROOT, ROOT), (5, 6))
    model.score([ScoreRequest(forked, NOTHING)])
    for _ in range(2):
        for owner, found in (("", 0), ("bert", 0), ("anna", 3)):
            session = model.open((*text[:3], 7), owner)
            assert len(session.leaves[0].slots) == found
            session.close()
        first.close()
        forked.close()


def test_everybody_finds_a_beginning_of_their_own_though_others_have_the_same():
    """Who sends what another has sent later must not hide what is there for the first."""
    model = CachedModel(Toy(vocab=9, room=400), prefix_cache=4)
    for owner in ("anna", "bert", ""):
        session = model.open((1, 2, 3, 4), owner)
        model.score([ScoreRequest(session, NOTHING)])
        session.close()
    assert [len(model.open((1, 2, 3, 7), owner).leaves[0].slots) for owner in ("anna", "bert", "")] == [3, 3, 3]


# ---- rotary tables


@pytest.mark.parametrize("scale", [1.0, 1.3])
def test_rotary_rows_are_there_for_every_place(scale):
    frequencies = 1.0 / 10_000 ** (torch.arange(0, 8, 2) / 8)
    made = Rotary(frequencies, scale, torch.float64)
    for place in (0, FIRST_ROWS - 1, FIRST_ROWS, FIRST_ROWS + 1, 2 * FIRST_ROWS, 5 * FIRST_ROWS):
        cos, sin = made.at(torch.tensor([place]), place)
        angles = torch.tensor(float(place)) * frequencies
        torch.testing.assert_close(cos[0, 0, :4], (angles.cos() * scale).double())
        torch.testing.assert_close(sin[0, 0], torch.cat((-angles.sin(), angles.sin())).double() * scale)


def test_a_text_grows_over_the_end_of_the_rotary_table_as_over_any_other_place(tmp_path, monkeypatch):
    folder = little_model(tmp_path / "little")
    settings = Settings(max_tokens=12, ignore_eos=True)
    prompt = tuple(range(2, 8))
    with loaded(folder) as lm:
        expected = lm.generate(prompt, settings).tokens
    for rows in range(5, 20):
        monkeypatch.setattr(rotary, "FIRST_ROWS", rows)
        with loaded(folder) as lm:
            assert lm.generate(prompt, settings).tokens == expected


# ---- a prompt that is read together with what was drafted behind it


def test_a_prompt_sees_nothing_behind_itself_when_a_tree_hangs_below(tmp_path):
    """In a network of several layers what one token sees wrongly reaches all that come later."""
    prompt = tuple(range(5, 14))
    tree = Tree(tuple(chosen(x) for x in (20, 30, 40, 50)), (ROOT, ROOT, 0, 1))
    with loaded(little_model(tmp_path / "little")) as lm:
        model = lm.model
        held = model.open(prompt)
        (together,) = model.score([ScoreRequest(held, tree)])
    with loaded(tmp_path / "little") as lm:  # which shares nothing with the first
        model = lm.model
        for node in (ROOT, *range(4)):
            text = (*prompt, *tree.tokens(tree.path(node)))
            (alone,) = model.score([ScoreRequest(model.open(text), NOTHING)])
            torch.testing.assert_close(together.law(node).scores, alone.leaf[0].scores, rtol=1e-4, atol=1e-4)


# ---- weights in few bits


@pytest.mark.parametrize(("kind", "steps"), [(Int8Linear, 254), (Int4Linear, 15)])
def test_weights_are_rounded_to_the_nearest_and_none_is_cut(kind, steps):
    weight = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    error = (kind.of(weight, None).whole(torch.float32) - weight).abs()
    if kind is Int8Linear:
        span = 2 * weight.abs().amax(1, keepdim=True).expand_as(weight)
    else:
        groups = weight.view(8, 4, 32)
        span = (groups.amax(2) - groups.amin(2)).repeat_interleave(32, 1)
    assert float((error / (span / steps)).max()) < 0.52  # half a step, and what float16 rounds of a scale


def test_where_room_is_short_the_oldest_closed_text_gives_way():
    toy = Toy(vocab=5, room=30)
    model = CachedModel(toy, prefix_cache=2)

    def read(text):
        session = model.open(text)
        model.score([ScoreRequest(session, NOTHING)])
        return session

    read((0,) * 10).close()
    read((1,) * 10).close()
    read((2,) * 12)  # for which ten slots are free
    known = toy.computed
    read((1,) * 10)
    assert toy.computed == known + 1  # its last token, which is always computed

"""What is kept is what was written: by every model, for one prompt alone, and past the end of every table."""

from dataclasses import dataclass

import pytest
import torch
from littlemodel import little_model, loaded
from toy import Toy, logits_of

from unspool.chance import Philox
from unspool.decode.speculate import Speculate
from unspool.draft import Chain
from unspool.run import beginnings, rotary
from unspool.run.engine import Engine
from unspool.run.rotary import FIRST_ROWS, Rotary
from unspool.run.session import Asked
from unspool.run.slotted import Slotted
from unspool.settings import Settings
from unspool.stop import Stop
from unspool.tree import NOTHING
from unspool.verify import rejection
from unspool.warp import Same

# ---- a draft model keeps up while its source rests


@dataclass(frozen=True)
class Sleepy:
    """A chain that rests for two tokens out of five."""

    def begin(self, prefix):
        return self

    def rest(self, prefix):
        return 2 if len(prefix) % 5 == 0 else 0

    def propose(self, prefix, budget, chance):
        return (yield from Chain(2).propose(prefix, budget, chance))

    def learn(self, prefix, tree, scores):
        pass


def test_the_draft_model_has_read_what_was_written_while_its_source_rested():
    models = {name: Slotted(Toy(vocab=4, room=400)) for name in ("target", "draft")}
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
    model = Slotted(Toy(vocab=9, room=400), shelf=4)
    texts = [(1, 2, 3, 4, 5, 6), (3, 4, 5, 6, 7, 8), (1, 2, 3, 6, 5, 4), (1, 2, 3, 4, 5, 6, 7, 8), (5, 5, 5, 5)]
    held = []
    for text in texts * 2:
        session = model.open(text)
        (leaf,) = session.leaves
        shared = leaf.slots
        keys, places = model.slots.read(0, shared) if shared else (torch.zeros(0), torch.zeros(0))
        assert keys.flatten().tolist() == list(text[: len(shared)])
        assert places.flatten().tolist() == list(range(len(shared)))
        (scores,) = model.score([Asked(session, NOTHING)])
        torch.testing.assert_close(scores.leaf[0].scores, logits_of(text, 9))
        held.append(session)
        if len(held) > 3:
            held.pop(0).close()


def test_a_beginning_that_is_the_same_is_shared():
    """Else the tests above would hold for an index that finds nothing."""
    model = Slotted(Toy(vocab=9, room=400))
    first = model.open((1, 2, 3, 4))
    model.score([Asked(first, NOTHING)])
    (leaf,) = model.open((1, 2, 3, 5, 6)).leaves
    assert leaf.slots == first.leaves[0].slots[:3]


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

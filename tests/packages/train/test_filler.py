"""Small models that fill holes, trained from nothing: what each kind learns, and that its folder is what was."""

from __future__ import annotations

import itertools
import json
import random

import pytest
import torch

import unspool
from unspool.api.settings import Settings as Asked
from unspool.core.asks import Look
from unspool.core.canvas import Canvas
from unspool.core.errors import BadRequest
from unspool.core.tree import NOTHING
from unspool.runtime.engine.contracts import LookRequest, ScoreRequest
from unspool_train.cli import train as commands
from unspool_train.filler.filler_network import FillerSize, SmallNetwork
from unspool_train.filler.filler_training import KINDS, FillerSettings, filler
from unspool_train.filler.text_losses import Certain, Gaps, Holes, Next, Unrolled, gapped, lightest, padded
from unspool_train.filler.texts import BEGIN, END, MASK, NONE, encoded, lines_of, tokenizer_of

pytestmark = pytest.mark.usefixtures("one_thread")

WORDS = ("the cat", "a dog", "my fox")
VERBS = ("sees", "likes", "finds")
LINES = [f"{a} {verb} {b}" for a, verb, b in itertools.product(WORDS, VERBS, WORDS) if a != b]


@pytest.fixture
def texts(tmp_path):
    dice = random.Random(0)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(dice.choice(LINES) for _ in range(400)))
    return file


def trained(texts, folder, kind, steps=3, **more):
    small = {"width": 32, "layers": 2, "heads": 2, "batch": 16, "held": 16, "minutes": 5.0, "vocab": 290}
    return filler(FillerSettings(kind=kind, texts=str(texts), out=str(folder), steps=steps, **{**small, **more}))


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_of_every_kind_has_the_trainer_s_laws(texts, tmp_path, kind):
    found = trained(texts, tmp_path / kind, kind)
    assert found["steps"] == 3
    assert json.loads((tmp_path / kind / "trained.json").read_text())["kind"] == kind
    lm = unspool.load(tmp_path / kind, device="cpu", dtype="fp32")
    network = SmallNetwork(FillerSize(lm.vocabulary.size, 32, 2, 2), kind == "next")
    network.take(str(tmp_path / kind))
    prompt = lm.encode("the cat")
    assert prompt[0] == BEGIN
    with torch.no_grad():
        if kind == "next":
            session = lm.model.open(prompt)
            (scores,) = lm.model.score([ScoreRequest(session, NOTHING)])
            want, got = network(torch.tensor([prompt]))[0, -1], scores.leaf[0].scores
            assert torch.allclose(got.float(), want, atol=2e-4)
            return
        canvas = Canvas.blank(prompt, 3)
        want = network(torch.tensor([[*prompt, MASK, MASK, MASK]]))[0, -3:]
    (field,) = lm.model.look([LookRequest(None, Look(canvas))])
    want[:, MASK] = -torch.inf  # which is never written
    assert torch.allclose(field.scores.float(), want, atol=2e-4)


def test_a_model_goes_on_from_the_weights_of_another_kind(texts, tmp_path):
    """AR2Diff: a causal model first, then the same weights learn to correct whole texts."""
    trained(texts, tmp_path / "next", "next", steps=60, lr=5e-3)
    cold = trained(texts, tmp_path / "cold", "unrolled", steps=1, lr=0.0)
    warm = trained(texts, tmp_path / "warm", "unrolled", steps=1, lr=0.0, init=str(tmp_path / "next"))
    assert warm["held_out"] < cold["held_out"] - 0.3
    with pytest.raises(BadRequest, match="no tokenizer"):
        trained(texts, tmp_path / "x", "holes", init=str(tmp_path))


@pytest.mark.parametrize(
    "lesson", [Next(), Holes(), Unrolled(), Certain(1.0, 8), Gaps({})], ids=lambda x: type(x).__name__
)
def test_every_lesson_is_learnt(lesson):
    torch.manual_seed(0)
    lines = [LINES[i % len(LINES)] for i in range(64)]
    made = tokenizer_of(lines, 290)
    some = encoded(made, lines, 64)
    network = SmallNetwork(FillerSize(made.get_vocab_size(), 32, 2, 2), isinstance(lesson, Next))
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    losses = []
    for _ in range(40):
        loss = lesson(network, some[:32])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])


def test_certainty_is_forced_where_the_model_is_right_and_nowhere_else():
    class Fixed(torch.nn.Module):
        size = FillerSize(6, 2, 1, 1)

        def __init__(self, logits):
            super().__init__()
            self.logits = torch.nn.Parameter(torch.tensor(logits))

        def forward(self, tokens):
            return self.logits.expand(*tokens.shape, 6)

    text = [[4, 4, 4, 4]]
    right, wrong = Fixed([0.0, 0.0, 0.0, 0.0, 1.0, 0.5]), Fixed([0.0, 0.0, 0.0, 0.0, 0.5, 1.0])
    for network, forced in ((right, True), (wrong, False)):
        torch.manual_seed(1)
        plain = Certain(0.0, 4)(network, text)
        torch.manual_seed(1)
        assert (Certain(2.0, 4)(network, text) > plain + 1e-3) == forced


def test_levels_take_the_lightest_tokens_of_which_no_two_are_neighbours():
    assert lightest([5, 1, 1, 5]) in ({1}, {2}, {1, 3}, {0, 2})
    assert lightest([5, 1, 5, 1, 5]) == {1, 3}
    assert lightest([3.0, 3.0]) in ({0}, {1})
    for weights in itertools.product((1.0, 2.0, 7.0), repeat=5):
        taken = lightest(weights)
        assert not any(i + 1 in taken for i in taken)
        most = max(weights) + 1e-6
        ways = (set(some) for n in range(6) for some in itertools.combinations(range(5), n))
        best = max(sum(most - weights[i] for i in way) for way in ways if not any(i + 1 in way for i in way))
        assert sum(most - weights[i] for i in taken) == pytest.approx(best)


def test_a_level_has_a_hole_in_every_gap_and_what_went_missing_there():
    row, labels = gapped([(7, True), (8, False), (9, False), (10, True)])
    assert row == [BEGIN, MASK, 8, MASK, 9, MASK]
    assert labels == [-1, 7, -1, NONE, -1, 10]
    gaps = Gaps({5: 0.1, 6: 3.0, 7: 2.0})
    levels = gaps.levels([6, 5, 7, 5, 6])
    assert levels[0] == [(x, False) for x in (6, 5, 7, 5, 6)]  # nothing goes into the whole text
    assert levels[1] == [(6, False), (5, True), (7, False), (5, True), (6, False)]
    assert len(levels[-1]) == 3
    assert padded([[7], [8, 9]]).tolist() == [[BEGIN, 7, END, END], [BEGIN, 8, 9, END]]


def test_a_trained_inserter_writes_round_its_words(texts, tmp_path):
    trained(texts, tmp_path / "gaps", "gaps", steps=300, lr=5e-3)
    lm = unspool.load(tmp_path / "gaps", device="cpu", dtype="fp32")
    for beam in (1, 3):
        output = lm.generate("", Asked(max_tokens=24), f"insert:words=cat+likes,beam={beam}", raw=True)
        assert "cat" in output.text
        assert "likes" in output.text.split("cat", 1)[1]
        assert len(output.tokens) > len(lm.encode("cat likes")) - 1
    never = lm.generate("", Asked(max_tokens=24), "insert:words=cat+likes,prevent=the", raw=True)
    assert "the" not in never.text


def test_what_cannot_be_trained_is_said(texts, tmp_path):
    with pytest.raises(BadRequest, match="--kind 'magic'"):
        trained(texts, tmp_path, "magic")
    with pytest.raises(BadRequest, match="heads"):
        trained(texts, tmp_path, "holes", width=30, heads=4)
    with pytest.raises(BadRequest, match="is no file"):
        lines_of("nowhere.txt", 5)
    empty = tmp_path / "empty.txt"
    empty.write_text("\n\n")
    with pytest.raises(BadRequest, match="has 0 lines"):
        lines_of(str(empty), 5)
    with pytest.raises(BadRequest, match="a batch has 16"):
        trained(texts, tmp_path, "holes", longest=2)
    assert "filler" in commands.commands

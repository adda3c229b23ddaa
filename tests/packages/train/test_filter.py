"""A learnt filter: what it is without learning, what it learns from, and that it learns."""

from __future__ import annotations

import pytest
import torch
from canvases import Scripted, same, table, told
from click.testing import CliRunner
from letters import Letters
from safetensors.torch import save_file

from unspool.core import files
from unspool.core.canvas import HOLE, Field
from unspool.core.errors import BadRequest
from unspool.core.law import Law
from unspool.recipes.methods import method
from unspool.rules.decode import Denoise
from unspool.rules.unmask import Confident, Filter, Filtered, FixedBlocks
from unspool_train.cli import train as commands
from unspool_train.filter import FilterSettings as FilterSettings
from unspool_train.filter import OracleFilling, examples, learn, train


def test_a_filter_that_lets_nothing_pass_fills_one_at_a_time():
    same(Denoise(Filtered(torch.logit, 4, 1.0), 4), Denoise(Confident(2.0), 4))


@pytest.mark.parametrize("seed", range(3))
def test_a_filter_that_believes_the_model_is_the_threshold(seed):
    same(Denoise(Filtered(torch.logit, 2, 0.6), 4, FixedBlocks(2)), Denoise(Confident(0.6), 4, FixedBlocks(2)), seed)


def test_a_filter_sees_its_block_and_takes_what_it_lets_pass():
    seen = []

    def third(sure):
        seen.append(sure.tolist())
        return torch.tensor([-9.0, -9.0, 9.0, -9.0])

    model = Scripted({1: (1, 0.6), 2: (2, 0.9), 3: (3, 0.3), 4: (4, 0.5), 5: (0, 0.4)})
    tokens, looks, canvases = told(Denoise(Filtered(third, 4), 5, FixedBlocks(4)), model)
    assert seen[0] == pytest.approx([0.6, 0.9, 0.3, 0.5])
    assert canvases[0].holes == [1, 4, 5]  # the surest, and the third
    assert seen[1] == pytest.approx([0.6, 1.0, 1.0, 0.5])
    assert seen[3] == pytest.approx([0.4, 1.0, 1.0, 1.0])  # a last block that is shorter
    assert (tokens, looks) == ((1, 2, 3, 4, 0), 4)


def test_a_filter_refuses_blocks_of_another_size():
    with pytest.raises(BadRequest, match=r"blocks of 2 places, and this one has 4"):
        told(Denoise(Filtered(torch.logit, 2), 4), table())


def test_the_oracle_fills_what_is_right_and_notes_it():
    model = Scripted({1: (1, 0.6), 2: (2, 0.9), 3: (3, 0.3)}, {2: (4, 0.5), 3: (4, 0.8)}, {2: (4, 0.7)})
    oracle = OracleFilling((1, 4, 0), 4)
    tokens, looks, _ = told(oracle, model)
    assert (tokens, looks) == ((1, 4, 0), 3)
    sure, right, was_open = zip(*oracle.notes, strict=True)
    assert [list(map(int, row)) for row in right] == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert [list(map(int, row)) for row in was_open] == [[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]]
    assert sure[1] == pytest.approx([1, 0.5, 0.8, 1])


class Parity:
    """Place i of the answer is certain if its left neighbour stands; before that its best token is wrong half the time.

    How sure the model looks says nothing of that, but where in the block a place is does.
    """

    vocab = 3

    def look(self, asked):
        return [Field({i: self._law(ask.look.canvas, i) for i in ask.look.places}, 1) for ask in asked]

    def _law(self, canvas, i):
        known = canvas.tokens[i - 1] != HOLE
        token = (i + canvas.tokens[0]) % 2 if known or i % 3 else 2
        return Law.of([0.8 if x == token else 0.1 for x in range(3)])


def test_training_finds_what_certainty_does_not_tell(tmp_path):
    prompts = [(n % 2,) for n in range(8)]
    data = examples(Parity(), prompts, size=6, block=6)
    assert data.sure.shape == data.right.shape == data.open.shape
    assert 0 < data.right[data.open > 0].mean() < 1
    trained = train(data, width=16, steps=250, rate=0.05)
    assert trained.wrong == 0
    assert trained.loss < 0.1
    slow = Denoise(Confident(2.0), 6)
    quick = Denoise(Filtered(trained.filter, 6), 6)
    bold = Denoise(Confident(0.7), 6)
    truth = told(slow, Parity(), (1,))
    assert told(quick, Parity(), (1,))[0] == truth[0]
    assert told(quick, Parity(), (1,))[1] < truth[1]
    assert told(bold, Parity(), (1,))[0] != truth[0]  # a threshold cannot tell right from wrong here
    trained.filter.save(tmp_path / "filter.safetensors")
    again = Filter.load(tmp_path / "filter.safetensors")
    assert torch.equal(again(data.sure), trained.filter(data.sure))
    assert method(f"filtered:file={tmp_path / 'filter.safetensors'}").unmask.size == 6


def test_one_comes_with_the_weights_and_knows_the_blocks_of_its_model(monkeypatch):
    made = method("filtered")
    assert made.unmask.size == 8  # as smollm2-diffusion was trained
    sure, unsure = (made.unmask.net(torch.full((8,), p)).sigmoid() for p in (0.999, 0.2))
    assert all(sure > made.unmask.threshold)
    assert not any(unsure[1:] > made.unmask.threshold)  # it has learnt that what comes next is read, not guessed
    monkeypatch.setattr(files, "find_spec", lambda _: None)
    with pytest.raises(BadRequest, match=r"trained filter: unspool-weights has one \(pip install"):
        method("filtered")


def test_a_file_that_is_no_filter_is_refused(tmp_path):
    with pytest.raises(BadRequest, match="is no filter"):
        method(f"filtered:file={tmp_path / 'none.safetensors'}")
    odd = tmp_path / "odd.safetensors"
    for write in (
        lambda: odd.write_bytes(b"{}"),
        lambda: save_file({"first.weight": torch.zeros(3)}, odd),
        lambda: save_file({"first.weight": torch.zeros(3, 2)}, odd),
        lambda: save_file({**Filter(2, 3).state_dict(), "second.weight": torch.zeros(1, 1)}, odd),
    ):
        write()
        with pytest.raises(BadRequest, match="is no filter"):
            method(f"filtered:file={odd}")


def test_a_filter_is_trained_by_a_command(tmp_path, monkeypatch):
    """On a model that is a table: the file that is written is one that `filtered` takes."""
    words = Letters(tuple("abcd"), controls=0, ends=1)

    class Stand:
        model, asked = table(words.size), staticmethod(lambda line: line)
        encode = staticmethod(words.encode)

    monkeypatch.setattr("unspool_train.filter.load", lambda name, **options: Stand())
    (tmp_path / "prompts.txt").write_text("ab\n\ncd\nba\n")
    out = tmp_path / "made" / "filter.safetensors"
    given = ["--prompts", tmp_path / "prompts.txt", "--answer", 6, "--block", 3, "--steps", 20, "--out", out]
    done = CliRunner().invoke(commands, ["filter", *map(str, given), "--count", "2", "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "looks" in done.output
    assert Filter.load(out).size == 3
    method(f"filtered:file={out}")
    with pytest.raises(BadRequest, match="--prompts"):
        learn(FilterSettings())
    with pytest.raises(BadRequest, match="--block is 0"):
        learn(FilterSettings(prompts=str(tmp_path / "prompts.txt"), block=0))

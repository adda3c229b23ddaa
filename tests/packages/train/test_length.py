"""The head of SpecDec++: what it learns from, that it learns, and that a bad one harms nothing but speed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from littlemodel import chatting_model
from safetensors.torch import save_file

from unspool.core.chance import Philox
from unspool.core.errors import BadRequest
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.loops.speculate import Speculate
from unspool.recipes.methods import method
from unspool.rules.draft import AcceptanceHead
from unspool.rules.verify import rejection
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.engine import Engine
from unspool_train.length import LengthExamples, LengthSettings, Observed, collected, length, train

SMALL = LengthSettings(steps=120, blocks=1, rate=3e-2)


def test_notes_are_the_chances_to_be_accepted_and_to_be_reached():
    """The tables' states are their laws: what the draft says after the token that is noted."""
    target, draft = Table(2, lambda text: (1, 3)), Table(2, lambda text: (1, 1) if text[-1] else (3, 1))
    drafter = Observed(3)
    engine = Engine({"target": target, "draft": draft})
    engine.submit(Speculate(drafter, rejection, budget=3), (0,), Philox(1), Same(), Stop(most=40))
    engine.run()
    assert len(drafter.notes) > 20
    for state, accepted, reached, text in drafter.notes:
        assert state.tolist() in ([0.75, 0.25], [0.5, 0.5])
        assert min(abs(accepted - chance) for chance in (1 / 3, 1 / 2, 1.0)) < 1e-9
        assert text == 1
        assert 0 < reached <= 1
    assert drafter.notes[0][2] == 1.0
    assert drafter.notes[1][2] == pytest.approx(drafter.notes[0][1])


def foreseeable(texts=16, each=40):
    """Tokens whose fate is the sign of the first number of a state."""
    states = torch.randn(texts * each, 6, generator=torch.Generator().manual_seed(3))
    accepted = (states[:, 0] > 0).float()
    return LengthExamples(states, accepted, torch.ones(texts * each), torch.arange(texts).repeat_interleave(each))


@pytest.mark.parametrize("blocks", [0, 2])
def test_it_learns_what_can_be_foreseen(blocks):
    trained = train(foreseeable(), replace(SMALL, blocks=blocks))
    assert trained.loss < 0.5 * trained.constant
    assert trained.surer > 0.75
    assert trained.less_sure < 0.1


def test_what_is_never_reached_teaches_nothing():
    data = foreseeable()
    lies = data._replace(accepted=1 - data.accepted, reached=torch.zeros_like(data.reached))
    both = LengthExamples(*(torch.cat(pair) for pair in zip(data, lies, strict=True)))
    assert train(both, SMALL).less_sure < 0.1


def test_refusals_count_more():
    data = foreseeable()._replace(states=torch.zeros(640, 6))  # nothing can be foreseen, half of them are refused
    calm, wary = (
        train(data, replace(SMALL, refusals=weight)).head(torch.zeros(1, 6)).sigmoid() for weight in (1.0, 6.0)
    )
    assert float(calm) == pytest.approx(0.5, abs=0.05)
    assert float(wary) == pytest.approx(1 / 7, abs=0.05)


def test_a_head_is_trained_saved_and_drafts_by_name(tmp_path, capsys):
    folder, file = chatting_model(tmp_path / "little"), tmp_path / "head.safetensors"
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("abc\n\nbca\ncab\n")
    asked = LengthSettings(str(folder), "layers:1", str(prompts), str(file), tokens=12, depth=3, steps=5, blocks=1)
    trained = length(asked)
    assert "of 3 prompts" in capsys.readouterr().out
    made = method(f"specdecpp:head={file},doubt=0.4,least=1,longest=5")
    assert (made.draft.doubt, made.draft.least, made.draft.longest, made.budget) == (0.4, 1, 5, 5)
    states = torch.randn(3, trained.head.width)
    assert torch.equal(made.draft.judge(states), trained.head(states))


@pytest.mark.parametrize("content", [b"", b"nothing", None])
def test_what_is_no_head_is_refused_in_words(tmp_path, content):
    file = tmp_path / "head"
    if content is None:
        save_file({"out.weight": torch.zeros(2, 2, 2)}, file)
    else:
        file.write_bytes(content)
    with pytest.raises(BadRequest, match="no acceptance head"):
        method(f"specdecpp:head={file}")


def test_a_head_for_other_states_and_a_missing_one_say_what_to_do():
    with pytest.raises(BadRequest, match=r"reads states of 4 numbers.*have 5"):
        AcceptanceHead(4)(torch.zeros(1, 5))
    with pytest.raises(BadRequest, match="unspool train length"):
        method("specdecpp")
    with pytest.raises(BadRequest, match="two answers"):
        collected([(torch.zeros(2), 1.0, 1.0, 1)] * 9)
    with pytest.raises(BadRequest, match="name the draft model"):
        length(LengthSettings())

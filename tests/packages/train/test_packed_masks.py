"""Masks packed beside a text (PPD, SPACE, LUD): what is learnt falls, and the model that is written drafts with it."""

from __future__ import annotations

import pytest
import torch

np = pytest.importorskip("numpy")

from tests.support.littlemodel import little_model  # noqa: E402
from unspool import load  # noqa: E402
from unspool.api.settings import Settings as Told  # noqa: E402
from unspool_train.corpus import Corpus  # noqa: E402
from unspool_train.drafter.lessons import Teaching  # noqa: E402
from unspool_train.drafter.packed import Packed  # noqa: E402
from unspool_train.foresight import slopes  # noqa: E402
from unspool_train.network import Frozen  # noqa: E402
from unspool_train.rows import batch_of  # noqa: E402
from unspool_train.speak import save  # noqa: E402
from unspool_train.teacher import Teacher  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
BLOCK = 3


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), 4)


@pytest.fixture(scope="module")
def teaching(target, tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "own.npz"
    rng = np.random.default_rng(0)
    save(str(file), [(rng.integers(2, 258, 30).tolist(), 6, 1) for _ in range(6)])
    teaching = Teaching(Teacher(Frozen.open(str(target), "cpu")), (), None)
    return teaching, Corpus.read([file])


@pytest.mark.parametrize("factors", [False, True], ids=["ppd", "space"])
def test_masks_come_nearer_and_the_text_is_the_model_s_own(factors, target, teaching, tmp_path):
    taught, corpus = teaching
    lesson = taught.lesson(batch_of(corpus, [0, 1, 2, 3], "cpu"))
    pupil = Packed(taught.teacher, BLOCK, 0, factors)
    optimiser, far = torch.optim.Adam(pupil.tensors.values(), lr=1e-2), []
    for _ in range(24):
        far.append(sum(pupil.learn(lesson, 1.0, slopes)))
        optimiser.step()
        optimiser.zero_grad()
    assert sum(far[-6:]) < sum(far[:6])
    told = pupil.measure(taught, corpus, [4, 5])
    assert len(told.best) == BLOCK
    assert all(0 <= rate <= 1 for rate in (*told.best, *told.overlap))
    pupil.write(tmp_path, str(target))
    lm, asked = load(tmp_path / "delta.safetensors"), Told(max_tokens=12, temperature=0)
    plain = lm.generate("a text", asked).tokens
    found = lm.generate("a text", asked, "masks")
    assert found.tokens == plain
    if not factors:
        assert load(target).generate("a text", asked).tokens == plain, "what a mask shows changes no text"


def test_what_is_learnt_is_what_the_runtime_computes(target, teaching, tmp_path):
    """The law behind the s-th mask below a text, in a tree, is that of the trainer's row of masks."""
    from unspool.core.canvas import HOLE
    from unspool.core.law import chosen
    from unspool.core.tree import Tree
    from unspool.runtime.engine.contracts import ScoreRequest

    taught, corpus = teaching
    pupil = Packed(taught.teacher, BLOCK, 0, False)
    with torch.no_grad():
        pupil.tensors["mask"].add_(torch.randn(pupil.tensors["mask"].shape, generator=torch.Generator().manual_seed(1)))
        pupil.tensors["mask"].copy_(pupil.tensors["mask"].half().float())
    pupil.write(tmp_path, str(target))
    lesson = taught.lesson(batch_of(corpus, [0], "cpu"))
    with torch.no_grad():
        _, behind, laid = pupil.guesses(pupil.weights(), lesson)
    begin = int(laid.inside[BLOCK])
    text = lesson.tokens[0, :begin].tolist()
    model = load(tmp_path / "delta.safetensors").model
    session = model.open(text)
    (scores,) = model.score([ScoreRequest(session, Tree.chain([chosen(HOLE)] * BLOCK))])
    for s in range(BLOCK):
        wanted = (taught.teacher.head @ behind[0, begin + s]).log_softmax(-1)
        law = scores.law(s).scores.log_softmax(-1)
        known = law > -1e9  # a model with masks never says one
        assert torch.allclose(law[known], wanted[known].log_softmax(-1), atol=1e-3)

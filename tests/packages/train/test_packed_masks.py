"""Masks packed beside a text (PPD, SPACE, LUD, Hidden Transfer): what is learnt falls, and what is written drafts."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from safetensors.torch import save_file

np = pytest.importorskip("numpy")

from tests.support.littlemodel import little_model  # noqa: E402
from unspool import load  # noqa: E402
from unspool.api.settings import Settings as Told  # noqa: E402
from unspool.core.canvas import HOLE  # noqa: E402
from unspool.core.errors import BadModel  # noqa: E402
from unspool.core.law import chosen  # noqa: E402
from unspool.core.tree import ROOT, Tree  # noqa: E402
from unspool.runtime.engine.contracts import ScoreRequest  # noqa: E402
from unspool_train.chunked_loss import slopes  # noqa: E402
from unspool_train.drafter.packed_masks import PackedMasks  # noqa: E402
from unspool_train.drafter.target_outputs import Teaching  # noqa: E402
from unspool_train.drafter.transferred import Transferred, transfer_layers  # noqa: E402
from unspool_train.rows import batch_of  # noqa: E402
from unspool_train.speak import save  # noqa: E402
from unspool_train.teacher import Teacher  # noqa: E402
from unspool_train.token_corpus import TokenCorpus  # noqa: E402
from unspool_train.training_network import Frozen  # noqa: E402

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
    return teaching, TokenCorpus.read([file])


PUPILS = {
    "ppd": partial(PackedMasks, factors=False),
    "space": partial(PackedMasks, factors=True),
    "hidden-transfer": Transferred,
}


@pytest.mark.parametrize("kind", PUPILS)
def test_masks_come_nearer_and_the_text_is_the_model_s_own(kind, target, teaching, tmp_path):
    taught, corpus = teaching
    lesson = taught.lesson(batch_of(corpus, [0, 1, 2, 3], "cpu"))
    pupil = PUPILS[kind](taught.teacher, BLOCK, 0)
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
    if kind != "space":
        assert load(target).generate("a text", asked).tokens == plain, "what a mask shows changes no text"


def shaken(pupil):
    """A pupil whose tensors have moved, in numbers that a file keeps."""
    dice = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in pupil.tensors.values():
            tensor.add_(0.3 * torch.randn(tensor.shape, generator=dice))
            tensor.copy_(tensor.half().float())
        if isinstance(pupil, Transferred):
            pupil.mask = pupil.mask.half().float()
    return pupil


@pytest.mark.parametrize("kind", ["ppd", "hidden-transfer"])
def test_what_is_learnt_is_what_the_runtime_computes(kind, target, teaching, tmp_path):
    """The law behind the s-th mask below a text, in a tree, is that of the trainer's row of masks."""
    taught, corpus = teaching
    pupil = shaken(PUPILS[kind](taught.teacher, BLOCK, 0))
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


def test_states_are_handed_wherever_masks_hang(target, teaching, tmp_path):
    """Below the text or a drafted token, with the text known or not, a mask is handed the state of the token above."""
    shaken(Transferred(teaching[0].teacher, BLOCK, 0)).write(tmp_path, str(target))
    model, text, plain = load(tmp_path / "delta.safetensors").model, [5, 6, 7, 8, 9], load(target).model
    mask = chosen(HOLE)
    alone, known = (scored(model, text + more, Tree.chain([mask] * BLOCK)) for more in ([], [11]))
    both = Tree((mask, mask, mask, chosen(11), mask, mask, mask), (ROOT, 0, 1, ROOT, 3, 4, 5))
    session = model.open(text)
    model.score([ScoreRequest(session, Tree.chain([]))])  # so that the text's own states were computed before
    (scores,) = model.score([ScoreRequest(session, both)])
    found = [scores.law(node).scores for node in range(len(both))]
    for s in range(BLOCK):
        assert torch.allclose(found[s], alone[s], atol=1e-4)
        assert torch.allclose(found[4 + s], known[s], atol=1e-4)
    real = scored(plain, text, Tree.chain([chosen(11)]))[0]
    some = found[3] > -1e9
    assert torch.allclose(found[3][some], real[some], atol=1e-4), "tokens do not see masks"


def scored(model, text, tree):
    """The laws behind the nodes of a tree below a text that is read at once with it."""
    (scores,) = model.score([ScoreRequest(model.open(text), tree)])
    return [scores.law(node).scores for node in range(len(tree))]


@pytest.mark.parametrize("told", ["", "1,0", "4", "x", "1,", "-1", "1" * 9, ",".join("1" * 40)])
def test_transfers_that_make_no_sense_are_refused(told, target, teaching, tmp_path):
    pupil = Transferred(teaching[0].teacher, 2, 0)
    about = {"base": str(target), **pupil.about(), "transfers": told}
    save_file(pupil.stored(), tmp_path / "delta.safetensors", metadata=about)
    with pytest.raises(BadModel, match="says transfers"):
        load(tmp_path / "delta.safetensors")


def test_layers_of_transfers_grow():
    assert transfer_layers(30, 3) == (7, 9, 11)
    assert transfer_layers(4, 3) == (1, 2, 3)
    assert transfer_layers(1, 2) == (0, 0)

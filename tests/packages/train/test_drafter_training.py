"""Training drafters: what is learnt falls, what is written is read and guesses the same, and a run can be resumed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from selection import crossed

np = pytest.importorskip("numpy")

from tests.support.littlemodel import little_model  # noqa: E402
from unspool import load  # noqa: E402
from unspool.api.settings import Settings as Told  # noqa: E402
from unspool.core.errors import BadRequest  # noqa: E402
from unspool.core.law import NEVER, chosen  # noqa: E402
from unspool.core.tree import NOTHING, Tree  # noqa: E402
from unspool.models.drafters.description import DrafterFile  # noqa: E402
from unspool.models.drafters.opening import open_drafter  # noqa: E402
from unspool.runtime.drafter.drafter_check import TextStates  # noqa: E402
from unspool.runtime.drafter.drafter_model import TrainedDrafter, network_of  # noqa: E402
from unspool.runtime.engine.contracts import ScoreRequest  # noqa: E402
from unspool_train.chunked_loss import foreseen, overlap_slopes, slopes, tvdpp_slopes  # noqa: E402
from unspool_train.decoder import Decoder, greedy  # noqa: E402
from unspool_train.drafter.adversary import Adversary  # noqa: E402
from unspool_train.drafter.beginnings import begun  # noqa: E402
from unspool_train.drafter.block_forward import BlockForward  # noqa: E402
from unspool_train.drafter.confidence import surprise  # noqa: E402
from unspool_train.drafter.consistency import Consistent, Laid  # noqa: E402
from unspool_train.drafter.drafter_training import DrafterRun, DrafterSettings, drafter  # noqa: E402
from unspool_train.drafter.export import DELTA, LLAMA  # noqa: E402
from unspool_train.drafter.kinds import KINDS, Asked  # noqa: E402
from unspool_train.drafter.muon import OPTIMISERS  # noqa: E402
from unspool_train.drafter.target_outputs import TargetOutputs, Teaching, TrainableDrafter, draft_vocabulary  # noqa: E402
from unspool_train.drafter.unroll import Unroll  # noqa: E402
from unspool_train.rows import batch_of  # noqa: E402
from unspool_train.speak import SpeakSettings as Speaking  # noqa: E402
from unspool_train.speak import save, speak, unlooped  # noqa: E402
from unspool_train.teacher import Teacher  # noqa: E402
from unspool_train.token_corpus import TokenCorpus  # noqa: E402
from unspool_train.training_network import Frozen  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
LAYERS, DEPTH, KNOWN = 6, 3, 90


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("target"), LAYERS)


@pytest.fixture(scope="module")
def frozen(target):
    return Frozen.open(str(target), "cpu")


@pytest.fixture(scope="module")
def corpus(frozen, tmp_path_factory):
    """What the target itself writes greedily after random letters."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(2, 258, 6).tolist() for _ in range(40)]
    decoder = Decoder(frozen, len(prompts), 64, 0, 1, False)
    decoder.load({**frozen.base, "mask": frozen.embedding.mean(0)})
    file = tmp_path_factory.mktemp("corpus") / "own.npz"
    texts = greedy(decoder, prompts, 24).tokens
    save(str(file), [(prompt + text, len(prompt), 1) for prompt, text in zip(prompts, texts, strict=True)])
    return file


@pytest.fixture
def asked(target, corpus, tmp_path):
    """Settings of a training of seconds."""

    def make(**changed) -> DrafterSettings:
        told = {"model": str(target), "corpus": str(corpus), "out": str(tmp_path / "out"), "device": "cpu", "steps": 12}
        told |= {
            "minutes": 5.0,
            "depth": DEPTH,
            "vocabulary": KNOWN,
            "tokens": 1024,
            "lr": 5e-3,
            "held": 0.2,
            "exams": 1,
        }
        return DrafterSettings(**{**told, **changed})

    return make


def losses(folder) -> list[list[float]]:
    """The distances by depth that the log tells, first to last."""
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["kind"] == "step"]


DEEP = {"peagle": 2, "dflash": 2, "dflash2": 2, "dream": 3}  # those that are more than one layer, or may be
READ = [name for name, kind in KINDS.items() if kind.form not in (LLAMA, DELTA)]  # by the readers of drafters


@pytest.mark.parametrize("kind", crossed(READ, quick=3))
def test_learns_and_is_read(kind, asked, target, tmp_path, capsys):
    told = asked(kind=kind, steps=25, tokens=512, json=True)
    found = drafter(told)
    first, last = losses(tmp_path / "out")[0], losses(tmp_path / "out")[-1]
    assert all(b < a for a, b in zip(first, last, strict=True)), "every depth comes nearer to the target's laws"
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["kind"] for line in lines][:2] == ["start", "step"]
    assert lines[-1]["kind"] == "end"
    best = found["acceptance"]["greedy"]["best"]
    assert len(best) == DEPTH
    lm = load(target, draft=tmp_path / "out")
    assert lm.drafter.network.spec.kind == ("Medusa" if kind == "koala" else KINDS[kind].title)
    plain = lm.generate("a text", Told(max_tokens=12, temperature=0)).tokens
    assert lm.generate("a text", Told(max_tokens=12, temperature=0), "likeliest").tokens == plain


@pytest.mark.parametrize("kind", crossed(READ, quick=2))
def test_what_is_read_guesses_what_the_trainer_does(kind, asked, target, frozen, corpus, tmp_path):
    """Along a text, at every place and depth, the logits of the trainer's forward are those of the runtime's."""
    drafter(asked(kind=kind, steps=3, layers=DEEP.get(kind, 1)))
    lm = load(target)
    file = open_drafter(tmp_path / "out", lm.model.network.shape)
    text = TokenCorpus.read([corpus])[3].tokens.tolist()
    teacher = Teacher(frozen)
    noted = teacher.noted(torch.tensor([text]), file.spec.states)
    states = torch.cat([noted[number] for number in file.spec.states], -1)
    pupil = TrainableDrafter(file, teacher, DEPTH)
    if isinstance(pupil.forward, BlockForward):
        pupil.forward.every = 1
    place = torch.arange(len(text) - 1)
    laws = torch.zeros(len(place), 1)
    lesson = TargetOutputs(torch.tensor([text]), states, laws, torch.zeros_like(place), place, laws)
    outs = [dict(zip(g.at.tolist(), g.x @ g.head.T, strict=True)) for g in pupil.guesses(lesson, DEPTH)]
    runtime = TrainedDrafter(
        network_of(file, lm.model.network.ends, 256), TextStates({n: t[0] for n, t in noted.items()}, file.spec.states)
    )
    ids = file.tensors.get("ids", torch.arange(lm.model.network.shape.vocab))
    for end in (2, 7, len(text) - 2 * DEPTH):
        session = runtime.open(text[:end])
        path = text[end : end + DEPTH - 1]
        (scores,) = runtime.score([ScoreRequest(session, Tree.chain([chosen(x) for x in path]))])
        for s in range(DEPTH):
            law = scores.leaf[0] if s == 0 else scores.law(s - 1)
            told = law.scores[ids] > NEVER  # a lattice says nothing of most tokens
            assert int(told.sum()) == (file.spec.lattice or len(ids))
            assert torch.allclose(law.scores[ids][told], outs[s][end - 2][told], atol=2e-4), (end, s)
        session.close()


@pytest.mark.parametrize("loss", ["tvd", "tvd++"])
def test_a_small_model_is_aligned(loss, asked, target, frozen, corpus, tmp_path):
    """It is written as a model: its laws are those of the trainer, and it drafts for its target."""
    drafter(asked(kind="small", loss=loss, steps=25, layers=2))
    first, last = losses(tmp_path / "out")[0], losses(tmp_path / "out")[-1]
    assert last[0] < first[0], "more drafts stand"
    lm = load(target, draft=tmp_path / "out")
    assert lm.draft.model.network.shape.layers == 2
    assert lm.draft.vocabulary.first_difference(lm.vocabulary) is None
    told = Told(max_tokens=12, temperature=0)
    assert lm.generate("a text", told, "chain").tokens == lm.generate("a text", told).tokens
    text = TokenCorpus.read([corpus])[3].tokens.tolist()
    session = lm.draft.model.open(text)
    (scores,) = lm.draft.model.score([ScoreRequest(session, NOTHING)])
    small = Frozen.open(str(tmp_path / "out"), "cpu")
    law = Teacher(small).states(torch.tensor([text]))[0, -1] @ small.head.float().T
    assert torch.allclose(scores.leaf[0].scores, law.log_softmax(-1) + scores.leaf[0].scores.logsumexp(-1), atol=1e-3)


def test_a_logistic_head_learns_which_guesses_stand():
    """From states that tell it: its surprise falls, and the states are left alone."""
    dice = torch.Generator().manual_seed(0)
    x, head = torch.randn(64, 6, generator=dice, requires_grad=True), torch.randn(9, 6, generator=dice)
    laws = torch.eye(9)[torch.arange(64) % 9] * (x[:, :1] > 0) + (x[:, :1] <= 0) * (x @ head.T).softmax(1)
    tensors = {"confidence.weight": torch.zeros(1, 6, requires_grad=True), "confidence.bias": torch.zeros(1)}
    first = surprise(tensors, x, head, laws.detach())
    for _ in range(200):
        (slope,) = torch.autograd.grad(surprise(tensors, x, head, laws.detach()), tensors["confidence.weight"])
        tensors["confidence.weight"] = (tensors["confidence.weight"] - slope).detach().requires_grad_()
    last = surprise(tensors, x, head, laws.detach())
    assert float(last.detach()) < float(first.detach()) - 0.1
    last.backward()
    assert x.grad is None
    assert float(tensors["confidence.weight"].detach()[0, 0]) < -1  # of which what stands depends


def test_an_adversary_tells_guesses_from_laws_and_moves_them():
    """KOALA's: after some steps what it adds to the loss draws guesses towards the laws, and before that nothing."""
    dice = torch.Generator().manual_seed(0)
    x, head = torch.randn(256, 6, generator=dice, requires_grad=True), torch.randn(9, 6, generator=dice)
    laws = (4 * torch.randn(256, 9, generator=dice)).softmax(1)
    judge = Adversary(torch.device("cpu"))
    (slope,) = torch.autograd.grad(judge.surprise(x, head, laws), x)
    assert not slope.any(), "it is not listened to at first"
    for _ in range(200):
        added = judge.surprise(x.detach(), head, laws)
    assert float(added) > 0.05 * 0.7, "it takes most guesses for what they are"
    before = x.detach().clone()
    (slope,) = torch.autograd.grad(judge.surprise(x, head, laws), x)
    moved = before - 0.3 * slope / slope.norm(dim=1, keepdim=True)
    assert float(judge.surprise(moved, head, laws)) < float(judge.surprise(before, head, laws))


def test_a_consistent_model_is_a_delta(asked, tmp_path):
    """It is written as a change of the target, whose Jacobi decoding is its own greedy text."""
    drafter(asked(kind="cllm", steps=2, depth=4, lr=1e-2))
    lm, told = load(tmp_path / "out" / "delta.safetensors"), Told(max_tokens=12, temperature=0)
    assert lm.generate("a text", told, "jacobi").tokens == lm.generate("a text", told).tokens


def test_a_consistent_model_comes_nearer_from_wrong_beginnings(frozen, corpus):
    """How far it is depends on how wrong the beginning was, so that many steps are compared with many."""
    teacher, read = Teacher(frozen), TokenCorpus.read([corpus])
    lesson = Teaching(teacher, (), None).lesson(batch_of(read, [1, 2, 3, 4], "cpu"))
    pupil = Consistent(teacher, 4, 0)
    optimiser, far = torch.optim.Adam(pupil.tensors.values(), lr=5e-3), []
    for _ in range(40):
        far.append(pupil.learn(lesson, 1.0, slopes)[0])
        optimiser.step()
        optimiser.zero_grad()
    assert sum(far[-12:]) < sum(far[:12])


def test_a_noisy_place_sees_the_text_before_its_block_and_its_block(frozen):
    laid = Laid.of(8, 3, 2, torch.device("cpu"))
    assert laid.inside.tolist() == [2, 3, 4, 5, 6, 7]
    seen = [[int(j) for j in row.nonzero()] for row in laid.mask]
    assert seen[4] == [0, 1, 2, 3, 4]  # clean
    assert seen[8 + 3] == [0, 1, 8 + 2, 8 + 3]
    assert seen[8 + 5] == [0, 1, 2, 3, 4, 8 + 5]


def test_before_it_learns_a_consistent_model_is_its_target(frozen, corpus):
    """Noisy places that hold the text itself have its laws, and Jacobi steps end with the greedy text."""
    teacher, read = Teacher(frozen), TokenCorpus.read([corpus])
    lesson = Teaching(teacher, (), None).lesson(batch_of(read, [3, 4], "cpu"))
    pupil = Consistent(teacher, 4, 0)
    laid = pupil.lay(lesson)
    clean, noisy = pupil.states(pupil.weights(), torch.cat([lesson.tokens, lesson.tokens], 1), laid)
    assert torch.allclose(clean, teacher.states(lesson.tokens), atol=1e-4)
    assert torch.allclose(clean[:, laid.inside], noisy[:, laid.inside], atol=1e-4)
    steps = pupil.iterated(frozen.base, lesson, laid, pupil.begun(lesson, laid))
    *_, last = (next(steps) for _ in range(4))
    row, place = lesson.row, lesson.place + 1
    inside = torch.isin(place, laid.inside)
    assert torch.equal(last[row[inside], place[inside]], lesson.tokens[row[inside], place[inside]])


@pytest.mark.parametrize("rule", [overlap_slopes, tvdpp_slopes])
def test_slopes_of_refusals(rule):
    """Against autograd; TVD++ has the same direction in every row."""
    dice = torch.Generator().manual_seed(0)
    logits, wanted = torch.randn(5, 7, generator=dice, requires_grad=True), torch.randn(5, 7, generator=dice).softmax(1)
    weight = torch.rand(5, generator=dice)
    loss, slope = rule(logits, wanted, weight)
    plain = (weight * (1 - torch.minimum(logits.softmax(1), wanted).sum(1))).sum()
    assert torch.allclose(loss, plain, atol=1e-6)
    (theirs,) = torch.autograd.grad(plain, logits)
    ratio = slope / theirs
    assert torch.allclose(ratio, ratio[:, :1].expand_as(ratio), rtol=1e-3)
    assert bool((ratio > 0.99).all())
    if rule is overlap_slopes:
        assert torch.allclose(slope, theirs, atol=1e-6)


def test_a_stopped_run_goes_on(asked, tmp_path):
    """Ctrl-C after some steps leaves a drafter and a checkpoint; what is resumed counts on from there."""
    out = tmp_path / "out"

    def interrupt() -> None:
        for _ in range(3000):
            if (out / "train.jsonl").exists() and "step" in (out / "train.jsonl").read_text():
                break
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    stopped = drafter(asked(steps=100_000))
    thread.join()
    assert 1 <= stopped["steps"] < 100_000
    assert (out / "model.safetensors").is_file()
    more = drafter(asked(steps=stopped["steps"] + 2, resume=True))
    assert more["steps"] == stopped["steps"] + 2
    assert more["tokens"] > stopped["tokens"]
    with pytest.raises(BadRequest, match="holds another drafter"):
        drafter(asked(vocabulary=KNOWN + 1, resume=True))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": "oracle"}, "expected one of eagle3"),
        ({"corpus": ""}, "no corpus was given"),
        ({"depth": 0}, "--depth is 0; expected at least 1"),
        ({"states": "2,x"}, "expected numbers such as"),
        ({"states": "2,40"}, "hidden states 0 to 6"),
        ({"optimiser": "sgd"}, "--optimiser is 'sgd'; expected one of muon, adamw"),
        ({"hidden": -1}, "--hidden is -1; expected 1 to"),
        ({"kind": "medusa", "hidden": 40}, "medusa has no perceptron whose width is free"),
        ({"held": 1.5}, "--held is 1.5; expected a share"),
        ({"kind": "dflash", "mask": 99999}, "--mask is 99999; .* has tokens 0 to 257"),
        ({"resume": True}, "is not there"),
    ],
)
def test_what_makes_no_sense_is_refused(changed, said, asked):
    with pytest.raises(BadRequest, match=said):
        drafter(asked(**changed))


def test_muon_moves_matrices_alike_in_all_directions_and_the_rest_as_adamw_does():
    dice = torch.Generator().manual_seed(0)
    slopes_of = {"layer.weight": torch.randn(6, 9, generator=dice), "head.weight": torch.randn(5, 4, generator=dice)}
    slopes_of |= {"norm.weight": torch.randn(6, generator=dice)}
    own, theirs = ({name: torch.zeros_like(x) for name, x in slopes_of.items()} for _ in range(2))
    muon, adamw = OPTIMISERS["muon"](own), OPTIMISERS["adamw"](theirs)
    for _ in range(3):
        for optimiser, tensors in ((muon, own), (adamw, theirs)):
            for group in optimiser.param_groups:
                group["lr"] = 0.01
            for name, tensor in tensors.items():
                tensor.grad = slopes_of[name]
            optimiser.step()
    for name in ("head.weight", "norm.weight"):
        assert torch.allclose(own[name], theirs[name], atol=1e-5)
    step, (left, _, right) = 3 * 0.01 * 0.2 * 3, torch.linalg.svd(slopes_of["layer.weight"], full_matrices=False)
    turned = left.T @ own["layer.weight"] @ right.T / -step
    assert torch.allclose(turned, torch.diag(turned.diag()), atol=1e-3), "along the slopes' own directions"
    assert 0.5 < float(turned.diag().min()) <= float(turned.diag().max()) < 1.4, "in all of them about as far"


def test_momentum_goes_on_where_it_was(asked, tmp_path):
    drafter(asked(optimiser="muon", steps=3))
    saved = load_file(tmp_path / "out" / "drafter.checkpoint")
    run = DrafterRun(asked(optimiser="muon", steps=5, resume=True))
    state = run.optimiser.state[run.pupil.tensors["fuse.weight"]]
    assert torch.equal(state["exp_avg"], saved["exp_avg.fuse.weight"])
    assert float(state["step"]) == 3
    assert "exp_avg_sq" not in state
    assert "exp_avg_sq" in run.optimiser.state[run.pupil.tensors["head.weight"]]


def test_questions_that_are_given_are_answered_greedily(target, corpus, tmp_path):
    """One a line, as text or JSON; longer ones are left out, and a batch that is not full is none the worse for it."""
    file = tmp_path / "asked"
    file.write_text("what is this?\n\n" + json.dumps("two\nlines") + "\n" + "long " * 40 + "\n12\n")
    told = Speaking(model=str(target), like=str(corpus), out=str(tmp_path / "answers.npz"), asked=str(file), rows=2)
    found = speak(replace(told, question=20, answer=6, seconds=60.0, eager=True, device="cpu"))
    assert found["documents"] == 3
    read, lm = TokenCorpus.read([tmp_path / "answers.npz"]), load(target)
    documents = [read[number] for number in range(3)]
    asked = {tuple(one.tokens[: one.prompt].tolist()): one.tokens[one.prompt :].tolist() for one in documents}
    assert set(asked) == {tuple(lm.encode(text)) for text in ("what is this?", "two\nlines", "12")}
    for prompt, answer in asked.items():
        text = lm.generate(prompt, Told(max_tokens=6, temperature=0, ignore_eos=True)).tokens
        assert answer == list(text[: len(answer)])
    with pytest.raises(BadRequest, match="no question of at most 1 tokens"):
        speak(replace(told, question=1, device="cpu", eager=True))


def answered(file) -> dict[bool, dict[tuple[int, ...], list[int]]]:
    """What was said to every prompt, greedily (True) and drawn."""
    read, found = TokenCorpus.read([file]), {True: {}, False: {}}
    for number, greedily in enumerate(read.greedy.tolist()):
        one = read[number]
        found[greedily][tuple(one.tokens[: one.prompt].tolist())] = one.tokens[one.prompt :].tolist()
    return found


def test_questions_are_answered_in_both_ways(target, corpus, tmp_path, monkeypatch):
    """Every question of documents greedily and drawn, long ones apart from short ones; half is drawn at first."""
    monkeypatch.setattr("unspool_train.speak._ROOM", 14)
    known = TokenCorpus.read([corpus])
    told = Speaking(model=str(target), like=str(corpus), asked=str(corpus), rows=8, question=20, answer=6, drawn=0.5)
    told = replace(told, out=str(tmp_path / "both.npz"), seconds=60.0, eager=True, device="cpu", heat=3.0, room=120)
    assert speak(told)["documents"] == 2 * len(known)
    answers = answered(tmp_path / "both.npz")
    asked = {tuple(known[i].tokens[: known[i].prompt].tolist()) for i in range(len(known))}
    assert set(answers[True]) == set(answers[False]) == asked
    assert speak(replace(told, drawn=0.0))["documents"] == len(known)
    assert answered(tmp_path / "both.npz") == {True: answers[True], False: {}}
    assert sum(answers[True][prompt] != answers[False][prompt] for prompt in asked) > len(asked) / 2
    with pytest.raises(BadRequest, match="--drawn is 2"):
        speak(replace(told, drawn=2.0))


@pytest.mark.parametrize("period", [1, 5, 20])
def test_loops_are_cut_where_their_second_turn_begins(period):
    turn = list(range(100, 100 + period))
    text = [*range(30), *turn * 30][:200]
    assert unlooped(text) == text[: 30 + period]
    assert unlooped([*text, 7]) == [*text, 7]
    assert unlooped(text[:9]) == text[:9]


def test_a_drafter_that_is_there_learns_on(asked, tmp_path):
    """It begins where the other ended, with its sizes and tokens, whatever else is asked; not with another kind."""
    drafter(asked(steps=20, hidden=40))
    before = losses(tmp_path / "out")[-1]
    (tmp_path / "out").rename(tmp_path / "first")
    run = DrafterRun(asked(steps=1, begin=str(tmp_path / "first"), vocabulary=7))
    assert run.file.spec.shape.hidden == 40
    assert len(run.file.tensors["ids"]) == KNOWN
    drafter(asked(steps=1, begin=str(tmp_path / "first")))
    assert sum(losses(tmp_path / "out")[0]) < 1.2 * sum(before)
    own, anew = run.file.tensors, DrafterRun(asked(steps=1, begin=str(tmp_path / "first"), vocabulary=120, renew=True))
    rows = dict(zip(own["ids"].tolist(), own["head.weight"], strict=True))
    assert len(anew.file.tensors["ids"]) == 120
    for token, row in zip(anew.file.tensors["ids"].tolist(), anew.file.tensors["head.weight"], strict=True):
        assert torch.equal(row, rows.get(token, anew.frozen.head[token].to(row.dtype)))
    with pytest.raises(BadRequest, match="of the kind EAGLE-3, and not MTP"):
        DrafterRun(asked(kind="mtp", begin=str(tmp_path / "first")))


def test_it_is_measured_on_documents_that_are_given(asked, corpus, tmp_path):
    """All of the corpus is learnt from then."""
    run = DrafterRun(asked(steps=1, examined=str(corpus)))
    assert len(run.among) == len(run.corpus.split(0.0)[0]) > len(DrafterRun(asked(steps=1)).among)
    assert len(run.held["greedy"]) == len(run.among)
    assert run.examine()["greedy"]["places"] > 100


def test_a_wider_perceptron_begins_as_the_targets(frozen):
    """What is more of it adds nothing yet, and can learn."""
    files = [
        begun(KINDS["eagle3"].spec(frozen.shape, Asked(1, (), DEPTH, 0, wide)), frozen, torch.arange(10), 0)
        for wide in (0, 3 * frozen.shape.hidden)
    ]
    assert files[1].tensors["layers.0.mlp.up_proj.weight"].shape == (3 * frozen.shape.hidden, frozen.shape.dim)
    tokens = torch.arange(12)[None] + 2
    states = torch.randn(
        1, 12, frozen.shape.dim * len(files[0].spec.states), generator=torch.Generator().manual_seed(1)
    )
    files[1].tensors.update({n: t for n, t in files[0].tensors.items() if ".mlp." not in n})
    outs = [list(Unroll(f.spec, frozen.embedding)(f.tensors, tokens, states, 2, None)) for f in files]
    for narrow, wide in zip(*outs, strict=True):
        assert torch.allclose(narrow, wide, atol=1e-5)
    assert bool(files[1].tensors["layers.0.mlp.gate_proj.weight"][-1].any())


def test_the_draft_vocabulary_is_what_answers_use(corpus):
    read = TokenCorpus.read([corpus])
    among = np.arange(len(read))
    ids = draft_vocabulary(read, among, 20, 258)
    answers = np.concatenate([read[i].tokens[read[i].prompt :] for i in among])
    counts = np.bincount(answers, minlength=258)
    assert ids.tolist() == sorted(ids.tolist())
    rest = np.setdiff1d(np.arange(258), ids.numpy())
    assert counts[ids.numpy()].min() >= counts[rest].max()
    assert draft_vocabulary(read, among, 0, 258) is None
    assert draft_vocabulary(read, among, 999, 258) is None


def test_slopes_are_those_of_the_cross_entropy():
    """Against autograd, with a law that was cut to some tokens, in slopes of states and of the head."""
    dice = torch.Generator().manual_seed(0)
    x, head = (
        torch.randn(5, 4, generator=dice, requires_grad=True),
        torch.randn(7, 4, generator=dice, requires_grad=True),
    )
    wanted, weight = 0.8 * torch.randn(5, 7, generator=dice).softmax(1), torch.rand(5, generator=dice)
    loss = foreseen(x, head, wanted, weight, slopes)
    ours = torch.autograd.grad(loss, (x, head))
    plain = -(weight[:, None] * wanted * (x @ head.T).log_softmax(1)).sum()
    assert torch.allclose(loss, plain, atol=1e-5)
    for mine, theirs in zip(ours, torch.autograd.grad(plain, (x, head)), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_begins_near_the_target(frozen):
    """The state passes through to a head that is the target's: nothing but the layer stands between."""
    file = begun(KINDS["eagle3"].spec(frozen.shape, Asked(1, (), DEPTH, 0)), frozen, torch.arange(10), 0)
    assert isinstance(file, DrafterFile)
    assert torch.equal(file.tensors["head.weight"], frozen.head[:10])
    dim = frozen.shape.dim
    assert torch.allclose(file.tensors["fuse.weight"][:, -dim:], torch.eye(dim), atol=0.1)

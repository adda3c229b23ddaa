"""Heads that look ahead: what they read and guess, that no text depends on them, and how they are trained."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from littlemodel import little_model
from patience import PATIENCE
from processes import started
from prompts import PROMPTS
from safetensors.torch import save_file

from unspool import Settings, load
from unspool.api.profile import Profile
from unspool.apps.cli.root import root
from unspool.core.chance import Philox
from unspool.core.errors import BadModel, BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, ROOT
from unspool.core.warp import Same
from unspool.core.warp.warp import Prefix
from unspool.recipes.methods import method
from unspool.rules.draft.heads import HeadsSource
from unspool.runtime.cache.table_model import Table
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import rms
from unspool.runtime.network.lookahead_heads import MedusaHeads

LONG = Settings(max_tokens=24, ignore_eos=True)
DIM = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("heads") / "little")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Random heads for it."""
    generator = torch.Generator().manual_seed(3)
    sizes = {"blocks": (3, 2, DIM, DIM), "biases": (3, 2, DIM), "tokens": (3, DIM, DIM)}
    path = tmp_path_factory.mktemp("heads") / "heads.safetensors"
    save_file({name: 0.3 * torch.randn(size, generator=generator) for name, size in sizes.items()}, path)
    return path


def by_hand(lm, text, token, k):
    """What the heads guess after a text that is read from its beginning, and one token more."""
    network, of = lm.model.network, lm.model.heads.matrices
    word = network.ends.embedding[token]
    word = word / word.square().mean().add(1e-6).sqrt()
    session = lm.model.open(text)
    state = lm.model.score([ScoreRequest(session, NOTHING, ("hidden:-1",))])[0].hidden["hidden:-1"][0]
    session.close()
    found = []
    for blocks, biases, own in zip(of.blocks, of.biases, of.tokens, strict=True):
        x, shift = state, F.linear(word, own)
        for block, bias in zip(blocks, biases, strict=True):
            x, shift = x + F.silu(F.linear(x, block, bias) + shift), 0
        p = network.ends.head(x[None])[0].softmax(0)
        found.append([(int(i), float(p[i])) for i in p.topk(k).indices])
    return found


def test_guesses_are_those_of_the_formula_at_every_node(folder, file):
    lm = load(folder, heads=file)
    session = lm.model.open([5, 9, 7])
    tree, _ = NOTHING.grow(chosen(11), ROOT)
    tree, _ = tree.grow(chosen(12), 0)
    tree, _ = tree.grow(chosen(13), ROOT)
    ahead = lm.model.score([ScoreRequest(session, tree, ("heads:4",))])[0].ahead
    for node, below in ((ROOT, []), (0, [11]), (1, [11, 12]), (2, [13])):
        for told, wanted in zip(ahead(node, 20), by_hand(lm, [5, 9, 7, *below], 20, 4), strict=True):
            assert [token for token, _ in told] == [token for token, _ in wanted]
            assert [p for _, p in told] == pytest.approx([p for _, p in wanted], rel=1e-4)


def test_what_is_read_is_what_leaves_the_last_norm(folder, file):
    lm = load(folder, heads=file)
    network = lm.model.network
    session = lm.model.open([5, 9, 7])
    found = lm.model.score([ScoreRequest(session, NOTHING, ("heads:2", "hidden:-1"))])[0]
    assert torch.allclose(network.ends.head(found.hidden["hidden:-1"])[0], found.leaf[0].scores, atol=1e-5)
    assert rms(torch.ones(1, DIM), network.ends.norm, 1e-5).shape == found.hidden["hidden:-1"].shape


def knowing(period, heads):
    """A table that counts, and heads that know what comes one and more tokens after a token."""
    target = Table(period, lambda text: F.one_hot(torch.tensor((text[-1] + 1) % period), period).tolist())
    target.heads = [
        Table(period, lambda text, k=k: F.one_hot(torch.tensor((text[-1] + k) % period), period).tolist())
        for k in range(1, heads + 1)
    ]
    return target


def test_guesses_are_for_the_text_that_they_were_made_for():
    source = HeadsSource(4, 2)
    source.guesses = [[(1, 0.5)]]
    assert (source.start(Prefix.of((0, 1), Same())), source.below(0)[1]) == (0, [(1, 0.5)])
    assert (source.start(Prefix.of((0, 1, 2), Same())), source.below(0)[1]) == (0, ())


@pytest.mark.parametrize("heads", [1, 3])
def test_heads_that_know_are_believed_to_the_last(heads):
    """One place off, and nothing that they guess would stand."""
    engine = Engine({"target": knowing(5, heads)})
    job = engine.submit(method("heads"), (0,), Philox(0), Same(), Stop(most=1 + 4 * (heads + 1)))
    engine.run()
    assert job.result().tokens == tuple((1 + i) % 5 for i in range(1 + 4 * (heads + 1)))
    assert job.trace.forwards["target"] == 1 + 4
    assert job.trace.accepted_tokens == job.trace.drafted == 4 * heads


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_bad_heads_change_no_text(folder, file, temperature):
    lm = load(folder, batch_invariant=True, heads=file)
    settings = Settings(max_tokens=24, ignore_eos=True, temperature=temperature, seed=5)
    found = lm.generate("Once", settings, "heads:nodes=5")
    assert found.tokens == lm.generate("Once", settings).tokens
    assert found.trace.drafted > 0
    texts = lm.batch(["Once", "a b c"], settings, "heads:nodes=5")
    assert texts[0].tokens == found.tokens


@pytest.mark.slow
def test_the_heads_of_the_default_model_bring_something(smollm2):
    """Its own text in fewer forwards."""
    forwards = tokens = 0
    for prompt in PROMPTS[:2]:
        chat = [{"role": "user", "content": prompt}]
        found = smollm2.generate(chat, Settings(max_tokens=24), "heads")
        assert found.tokens == smollm2.generate(chat, Settings(max_tokens=24)).tokens
        forwards, tokens = forwards + found.trace.forwards["target"], tokens + len(found.tokens)
    assert tokens / forwards > 1.25


def test_heads_that_come_with_a_model_are_read_when_first_wanted(smollm2_path):
    lm = load("smollm2", dtype="fp32", device="cpu")
    lm.generate("Once", Settings(max_tokens=2), "lookup")
    assert "heads" not in vars(lm.model)
    lm.generate("Once", Settings(max_tokens=2), "heads")
    assert len(vars(lm.model)["heads"]) == 4


def test_a_model_without_heads_says_so(folder):
    with pytest.raises(BadRequest, match="this model has none"):
        load(folder).generate("Once", LONG, "heads")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"blocks": (2, 1, 16, 16), "biases": (2, 1, 16)}, "trained for another model"),
        ({"blocks": (2, 1, DIM, DIM), "biases": (2, 1, DIM), "tokens": (1, DIM, DIM)}, "has tokens of"),
        ({"blocks": (0, 1, DIM, DIM), "biases": (0, 1, DIM)}, "trained for another model"),
        ({"blocks": (2, 1, DIM, DIM), "biases": (1, 1, DIM)}, "trained for another model"),
        ({"blocks": (2, DIM, DIM), "biases": (2, DIM)}, "trained for another model"),
        ({"weight": (3, 3)}, "holds weight; expected blocks, biases"),
    ],
)
def test_other_files_are_refused(folder, tmp_path, parts, told):
    save_file({name: torch.zeros(size) for name, size in parts.items()}, tmp_path / "other.safetensors")
    with pytest.raises(BadModel, match=told):
        load(folder, heads=tmp_path / "other.safetensors")


def test_what_is_no_file_of_tensors_is_refused(folder, tmp_path):
    with pytest.raises(BadModel, match=r"cannot be read as heads \(.*\). Give what `unspool train heads` wrote"):
        load(folder, heads=tmp_path / "nowhere.safetensors")
    (tmp_path / "text").write_text("no tensors")
    with pytest.raises(BadModel, match=r"cannot be read as heads \(.*\). Give what `unspool train heads` wrote"):
        load(folder, heads=tmp_path / "text")


def test_heads_are_for_the_native_runtime_alone(folder, file):
    with pytest.raises(BadRequest, match="native runtime"):
        load(folder, runtime="transformers", heads=file)


@pytest.mark.slow
def test_the_command_line_takes_them(folder, file, capsys):
    asked = ["-m", str(folder), "--device", "cpu"]
    run = ["run", *asked, "--raw", "--max-tokens", "8", "--ignore-eos", "--method", "heads", "--quiet", "Once"]
    ran = subprocess.run([sys.executable, "-m", "unspool", *run, "--heads", str(file)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip("\n") == load(folder).generate("Once", Settings(max_tokens=8, ignore_eos=True)).text
    with pytest.raises(BadRequest, match="--heads FILE"):
        root.main(args=run, standalone_mode=False)
    weights = []
    for more in ([], ["--heads", str(file)]):
        root.main(
            args=["plan", str(folder), "--device", "cpu", "--dtype", "bf16", "--json", *more], standalone_mode=False
        )
        weights.append(json.loads(capsys.readouterr().out)["weights"])
    assert weights[1] - weights[0] == 2 * 3 * (2 * DIM * DIM + 2 * DIM + DIM * DIM)


@pytest.mark.slow
def test_tuning_tries_them_and_a_profile_names_them(folder, file, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSPOOL_HOME", str(tmp_path / "home"))
    (tmp_path / "prompts.txt").write_text("one two\n")
    command = [sys.executable, "-m", "unspool", "auto-tune", "-m", str(folder), "--heads", str(file), "--json"]
    more = ["--prompts", str(tmp_path / "prompts.txt"), "--max-tokens", "4", "-o", str(tmp_path / "p.toml")]
    tuned = subprocess.run([*command, *more], capture_output=True, text=True)
    assert tuned.returncode == 0, tuned.stderr
    assert "heads:nodes=7" in {arm["method"] for arm in json.loads(tuned.stdout)["arms"]}
    assert len(Profile.read(tmp_path / "p.toml").load().model.heads) == 3


# ---- training


def test_answers_are_where_the_next_token_is_one_of_the_answer():
    pytest.importorskip("numpy")
    from unspool_train.rows import PaddedBatch

    batch = PaddedBatch(torch.zeros(2, 9, dtype=torch.long), torch.tensor([9, 6]), torch.tensor([4, 3]))
    assert batch.answers().tolist() == [[0, t] for t in (3, 4, 5, 6, 7)] + [[1, t] for t in (2, 3, 4)]


@pytest.mark.parametrize(("given", "told"), [({}, "--corpus"), ({"corpus": "x", "heads": 0}, "--heads is 0")])
def test_training_says_what_is_wrong(given, told):
    pytest.importorskip("numpy")
    from unspool_train.medusa_heads import HeadsSettings as Training
    from unspool_train.medusa_heads import heads

    with pytest.raises(BadRequest, match=told):
        heads(Training(**given))


@pytest.fixture(scope="module")
def corpus(folder, tmp_path_factory):
    """Texts in the little model's own words."""
    numpy = pytest.importorskip("numpy")
    lm, path = load(folder), tmp_path_factory.mktemp("heads") / "own.npz"
    texts = [lm.generate([5 + i, 9, 7], Settings(max_tokens=20, ignore_eos=True)).tokens for i in range(24)]
    tokens = [[5 + i, 9, 7, *text] for i, text in enumerate(texts)]
    fields = {"lens": [len(one) for one in tokens], "plen": [3] * 24, "mode": [0] * 24, "end": [2] * 24}
    told = {name: numpy.array(one, "uint16") for name, one in fields.items()}
    numpy.savez(path, toks=numpy.concatenate(tokens).astype("uint16"), **told)
    return path


def test_training_teaches_heads_what_the_model_will_say(folder, corpus, tmp_path, one_thread):
    from unspool_train.medusa_heads import HeadsSettings as Training
    from unspool_train.medusa_heads import heads

    asked = Training(
        model=str(folder), corpus=str(corpus), out=str(tmp_path), heads=2, blocks=1, steps=120, tokens=256, lr=1e-2,
        held=0.1, device="cpu",
    )  # fmt: skip
    found = heads(asked)
    assert all(last < first - 0.5 for first, last in zip(found["first"], found["last"], strict=True))
    lm, trained = load(folder), load(folder, heads=tmp_path / "heads.safetensors")
    assert isinstance(trained.model.heads, MedusaHeads)
    drafted = trained.generate([6, 9, 7], LONG, "heads")
    assert drafted.tokens == lm.generate([6, 9, 7], LONG).tokens
    assert drafted.trace.accepted_tokens > 0


@pytest.mark.slow
def test_an_interrupt_ends_training_and_what_was_learned_is_there(folder, corpus, tmp_path):
    command = [sys.executable, "-m", "unspool", "train", "heads", "--model", str(folder), "--corpus", str(corpus)]
    more = ["--out", str(tmp_path), "--tokens", "256", "--held", "0.1", "--device", "cpu", "--heads", "2"]
    with started([*command, *more], stdout=subprocess.PIPE, text=True) as training:
        for line in training.stdout:
            if line.startswith("step 25 "):
                training.send_signal(signal.SIGINT)
            if line.startswith("stopped after"):
                break
        rest = training.stdout.read()
        assert training.wait(PATIENCE) == 0
    assert "head 2: top 1" in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heads.json", "heads.safetensors"]
    assert len(load(folder, heads=tmp_path / "heads.safetensors").model.heads) == 2

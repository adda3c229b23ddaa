"""A model on several ranks is the model on one: the same logits, the same texts by any method, and a clean end."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from littlemodel import little_model
from patience import PATIENCE, until
from processes import started

import unspool
from unspool import Settings
from unspool.api.memory_plan import plan
from unspool.api.writer import Interrupted
from unspool.core.canvas import HOLE
from unspool.core.errors import BadRequest, OutOfRoom, RankLost
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.models.layer_shape import ExpertSpec
from unspool.models.shape import DiffusionSpec, Shape
from unspool.models.share import RankCheckpoint, RankShare, refuse
from unspool.models.weights import open_checkpoint
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, Row, SoftTokens
from unspool.runtime.parallel import ranks as ranks_module
from unspool.runtime.parallel.sharded import Sharded

VOCAB = 97
LLAMA = Shape("llama", 2, 24, 6, 2, 4, 32, VOCAB, 256, 1e-5, 10000.0, tied=True)
SHAPES = {
    "two heads each": (LLAMA, 2),
    "heads that do not divide": (replace(LLAMA, heads=9, kv_heads=3, hidden=31), 2),
    "three ranks": (replace(LLAMA, heads=9, kv_heads=3, hidden=31), 3),
    "more ranks than keys": (replace(LLAMA, heads=8), 4),
    "qwen": (replace(LLAMA, tied=False, qkv_bias=True, out_bias=True, mlp_bias=True, qk_norm=True, head_dim=6), 2),
    "gemma": (
        replace(LLAMA, windows=(5, None), post_norms=True, embed_scale=5.0, activation="gelu_tanh", qk_norm=True),
        2,
    ),
    "holes": (replace(LLAMA, filling=DiffusionSpec("full", "aligned", 7, learned=True)), 2),
}


class Dice:
    """A checkpoint of any shape, random but always the same."""

    rope_factors, title, bytes = None, "dice", 0

    def __init__(self, shape):
        self.shape = shape

    def names(self):
        return frozenset(self.shape.tensors())

    def tensor(self, name, dtype=None):
        seed = sum(map(ord, name))
        size = self.shape.tensors()[name]
        found = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return (0.3 * found + ("norm" in name)).to(dtype or torch.float64)


class Threads:
    """Ranks as threads of one process, which meet at a barrier."""

    def __init__(self, share, box, barrier):
        self.share, self.box, self.barrier = share, box, barrier

    def _all(self, x):
        self.box[self.share.rank] = x
        self.barrier.wait(PATIENCE)
        found = list(self.box)
        self.barrier.wait(PATIENCE)
        return found

    def sum(self, x):
        return torch.stack(self._all(x)).sum(0)

    def join(self, x, width):
        found = torch.cat(self._all(x), 1)
        assert found.shape[1] == width
        return found


def threads(checkpoint, ranks, dtype=torch.float64):
    """The shards, and a function that runs a batch on all of them."""
    box, barrier = [None] * ranks, threading.Barrier(ranks)
    shards = [Sharded.of(checkpoint, Threads(RankShare(rank, ranks), box, barrier), dtype) for rank in range(ranks)]

    def forward(batch):
        with ThreadPoolExecutor(ranks) as pool:
            return list(pool.map(lambda shard: shard.forward(batch), shards))

    return shards, forward


def batches(holes):
    """A prompt, and then a drafted tree behind it beside another text; with holes, one of which shows a mixture."""
    text = torch.arange(3, 15)
    mixed = None
    if holes:
        text = torch.where(torch.arange(12) % 4 == 2, HOLE, text)
        mixed = SoftTokens(
            torch.tensor([6]), torch.full((1, VOCAB), 1 / VOCAB, dtype=torch.float64), torch.tensor([0.4])
        )
    yield Batch(
        text,
        torch.arange(12),
        list(range(12)),
        [Row(0, 12, list(range(12)), list(range(12)))],
        torch.arange(12),
        (0, 1, -1),
        mixed,
    )
    slots, places = [*range(12), 20, 21, 22], [*range(12), 12, 12, 13]  # two siblings, and a child of the second
    hidden = torch.zeros(3, 15, dtype=torch.bool)
    hidden[0, 13:] = hidden[1, [12, 14]] = hidden[2, 12] = True
    rows = [Row(0, 3, slots, places, hidden), Row(3, 2, [30, 31], [0, 1])]
    tokens = torch.tensor([40, 41, 42, 50, 51])
    yield Batch(tokens, torch.tensor([12, 12, 13, 0, 1]), [20, 21, 22, 30, 31], rows, torch.tensor([0, 1, 2, 4]))


def distance(shape, ranks):
    """The largest difference between the numbers of ranks and of one network."""
    whole = Llama.load(Dice(shape), torch.float64)
    _, forward = threads(Dice(shape), ranks)
    far = [0.0]
    for batch in batches(shape.filling is not None):
        expected = whole.forward(batch)
        assert expected.logits.nan_to_num(neginf=0).abs().max() > 0.5
        for found in forward(batch):
            far.append(float((found.logits.exp() - expected.logits.exp()).abs().max()))
            far += (float((found.hidden[i] - expected.hidden[i]).abs().max()) for i in expected.hidden)
    return max(far)


@pytest.mark.parametrize("name", SHAPES)
def test_shares_together_are_the_network(name, one_thread):
    assert distance(*SHAPES[name]) < 1e-9


BUGS = {
    "no sum behind attention": lambda patch: patch.setattr(
        "unspool.runtime.parallel.sharded.replace",
        lambda thing, **changes: replace(thing, **{k: v for k, v in changes.items() if k != "out"}),
    ),
    "no sum behind the perceptron": lambda patch: patch.setattr(
        "unspool.runtime.parallel.sharded.replace",
        lambda thing, **changes: replace(thing, **{k: v for k, v in changes.items() if k != "down"}),
    ),
    "another rank's keys": lambda patch: patch.setattr(
        RankShare, "keys", lambda self, shape: RankShare(self.ranks - 1 - self.rank, self.ranks).part(shape.kv_heads)
    ),
    "another rank's rows of out": lambda patch: patch.setattr(
        RankCheckpoint, "tensor", _mirrored(RankCheckpoint.tensor)
    ),
    "a bias from every rank": lambda patch: patch.setattr("unspool.models.share.torch.zeros_like", lambda x: x),
    "logits in the wrong order": lambda patch: patch.setattr(
        Threads, "join", lambda self, x, width: torch.cat(self._all(x)[::-1], 1)
    ),
}


def _mirrored(tensor):
    def found(self, name, dtype=None):
        share = self.share
        other = RankShare(share.ranks - 1 - share.rank, share.ranks)
        return tensor(RankCheckpoint(self.whole, other if "o_proj.weight" in name else share), name, dtype)

    return found


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_sharing_shows(bug, one_thread, monkeypatch):
    shape, ranks = SHAPES["qwen"]
    assert distance(shape, ranks) < 1e-9
    BUGS[bug](monkeypatch)
    assert distance(shape, ranks) > 1e-3


def test_every_rank_holds_its_part_of_weights_and_cache_and_the_plan_says_how_much():
    for name, (shape, ranks) in SHAPES.items():
        shards, forward = threads(Dice(shape), ranks)
        forward(next(iter(batches(shape.filling is not None))))
        held = [len(shard.slots.read(0, [0])[0]) for shard in shards]
        assert sum(held) == max(shape.kv_heads, ranks), name
        assert max(held) - min(held) <= 1
        part = RankCheckpoint(Dice(shape), RankShare(0, ranks))
        exact = sum(part.tensor(each, torch.float32).nbytes for each in part.names())
        found = plan(shape, torch.float32, context=100, tree=1, ranks=ranks)
        extra = 0 if shape.filling is None else 4 * shape.dim  # the plan leaves a learned mask out
        assert found.weights == exact - extra
        assert found.kv == 102 * 2 * shape.layers * held[0] * shape.head_dim * 4
        assert found.weights < plan(shape, torch.float32).weights
    assert f"on each of {ranks} ranks" in found.note


@pytest.mark.parametrize(
    ("shape", "ranks", "message"),
    [
        (replace(LLAMA, heads=9, kv_heads=3), 2, None),
        (replace(LLAMA, heads=9, kv_heads=3), 9, None),
        (replace(LLAMA, heads=9, kv_heads=3), 4, "4 ranks cannot share 9 query heads on 3 .* at most 3, or 9"),
        (LLAMA, 3, "3 ranks cannot share 6 query heads on 2 key-value heads; choose at most 2, or 6"),
        (replace(LLAMA, heads=2), 4, "choose at most 2\\."),
        (LLAMA, 0, "ranks=0; expected"),
        (replace(LLAMA, mixture=ExpertSpec(4, 2, 8)), 2, None),
    ],
)
def test_what_cannot_be_shared_is_refused_with_numbers(shape, ranks, message):
    if message is None:
        refuse(shape, ranks)
    else:
        with pytest.raises(BadRequest, match=message):
            refuse(shape, ranks)


# ---- processes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return little_model(tmp_path_factory.mktemp("ranks") / "little")


@pytest.fixture(scope="module")
def one(folder):
    return unspool.load(folder, dtype="fp32", device="cpu")


@pytest.fixture(scope="module")
def shared():
    """The model on two ranks that tests go on with, if there is one: in a process there can be only one at a time."""
    before, kept = torch.get_num_threads(), []
    torch.set_num_threads(1)
    yield kept
    ended(kept)
    torch.set_num_threads(before)


def ended(kept):
    while kept:
        kept.pop().model.network.close()


@pytest.fixture
def two(folder, shared):
    """Tests come in any order, also behind those that end it."""
    if not shared:
        shared.append(unspool.load(folder, dtype="fp32", device="cpu", ranks=2))
    return shared[0]


def point(token):
    return Drawn(token, Law.point(token))


def scores_of_a_tree(lm):
    """The numbers of a tree, and of what follows when one of its paths is kept, which moves down to the text."""
    tree = NOTHING
    for token, under in [(5, ~0), (6, ~0), (7, 1), (8, 0), (9, 2)]:
        tree, _ = tree.grow(point(token), under)
    session = lm.model.open([3, 1, 4, 1, 5])
    (scores,) = lm.model.score([ScoreRequest(session, tree, ("hidden:1",))])
    session.keep(tree, (4,), (11,))
    (after,) = lm.model.score([ScoreRequest(session, Tree.chain([point(12)]), ("hidden:-1",))])
    session.close()
    laws = [x.scores for x in (*scores.after, *scores.leaf, *after.after, *after.leaf)]
    return torch.cat([x.flatten() for x in (*laws, scores.hidden["hidden:1"], after.hidden["hidden:-1"])])


def test_scores_of_a_tree_are_those_of_one_rank(one, two, monkeypatch):
    expected = scores_of_a_tree(one)
    two.model.forget()
    assert (scores_of_a_tree(two) - expected).abs().max() < 1e-4
    two.model.forget()
    monkeypatch.setattr(
        ranks_module.ParallelPool, "move", lambda self, old, new: None
    )  # a rank that does not hear of it
    assert (scores_of_a_tree(two) - expected).abs().max() > 1e-2
    two.model.forget()


@pytest.mark.parametrize("method", ["plain", "lookup:ngram=1,least=1", "suffix", "recycle:nodes=8", "beam:width=3"])
@pytest.mark.parametrize("settings", [Settings(max_tokens=10), Settings(max_tokens=10, temperature=1.0, seed=5)])
def test_texts_are_those_of_one_rank(one, two, method, settings):
    if method.startswith("beam") and settings.temperature:
        method = "stochastic:width=3"
    prompts = ["again and again and again", "x"]
    expected, found = (lm.batch(prompts, settings, method) for lm in (one, two))
    assert [x.tokens for x in found] == [x.tokens for x in expected]
    assert [x.trace.rows for x in found] == [x.trace.rows for x in expected]  # they drafted and reused the same


def test_a_batch_of_mixed_requests_is_that_of_one_rank(one, two):
    texts = []
    for lm in (one, two):
        engine = Engine(lm.models(), lm.price)
        writers = [
            *lm.writers(engine, ["abc abc abc"], Settings(max_tokens=8), "suffix"),
            *lm.writers(engine, ["abc abd"], Settings(max_tokens=12, temperature=0.8, seed=1, n=2), "plain"),
            *lm.writers(engine, ["z"], Settings(max_tokens=6), "recycle:nodes=4"),
        ]
        while engine.step():
            pass
        texts.append([writer.output().tokens for writer in writers])
    assert texts[0] == texts[1]
    assert len(set(texts[0])) == 4


def test_a_prefix_is_reused_on_every_rank(two):
    start = "one prompt of a good length, said twice: "
    two.generate(start + "a", Settings(max_tokens=3))
    found = two.generate(start + "b", Settings(max_tokens=8))
    assert found.trace.rows["target"] < 15
    two.model.forget()
    cold = two.generate(start + "b", Settings(max_tokens=8))
    assert cold.trace.rows["target"] > len(start)
    assert cold.tokens == found.tokens


def test_what_is_refused_reaches_no_other_rank(one, two):
    with pytest.raises(OutOfRoom):
        two.generate("x" * 5000)
    with pytest.raises(BadRequest, match="hidden:9"):
        two.model.score([ScoreRequest(two.model.open([1, 2]), NOTHING, ("hidden:9",))])
    settings = Settings(max_tokens=4)
    assert two.generate("go on", settings).tokens == one.generate("go on", settings).tokens


def test_an_interrupt_comes_between_two_forwards(one, two, monkeypatch):
    """In the middle of one it would leave the other rank waiting for a sum that never comes."""
    perform, done = ranks_module.perform, []

    def interrupted(network, work):
        if len(done) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)
        done.append(perform(network, work))
        return done[-1]

    monkeypatch.setattr(ranks_module, "perform", interrupted)
    with pytest.raises(Interrupted) as stopped:
        two.generate("stop me", Settings(max_tokens=9))
    assert len(done) == 3
    settings = Settings(max_tokens=9)
    expected = one.generate("stop me", settings).tokens
    assert 0 < len(stopped.value.outputs[0].tokens) < 9
    assert expected[: len(stopped.value.outputs[0].tokens)] == stopped.value.outputs[0].tokens
    assert two.generate("stop me", settings).tokens == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 3}, "3 ranks cannot share 4 query heads on 2"),
        ({"ranks": 2}, "torch.distributed is in use"),
        ({"ranks": 2, "quantization": "int8"}, "quantization='int8'"),
        ({"ranks": 2, "batch_invariant": True}, "batch_invariant=True"),
        ({"ranks": 2, "runtime": "transformers"}, "native"),
    ],
)
def test_loads_that_cannot_be(folder, two, options, message):
    with pytest.raises(BadRequest, match=message):
        unspool.load(folder, dtype="fp32", device="cpu", **options)


def running(process):
    """Whether a process is there and not only its exit status."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_rank_that_is_killed_is_an_error_and_not_a_wait(two, shared):
    (follower,) = two.model.network.followers
    os.kill(follower, signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(RankLost, match=rf"rank 1 \(process {follower}\) was killed by signal 9\. Load .* again"):
            two.generate("anybody there?", Settings(max_tokens=3))
    assert not torch.distributed.is_initialized()
    ended(shared)


def test_a_rank_that_does_not_start_is_an_error_and_leaves_nothing(folder, shared, monkeypatch, tmp_path):
    ended(shared)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    threads = torch.get_num_threads()
    with pytest.raises(RankLost, match=r"could not be started: rank 1 \(process \d+\) ended with status 3"):
        unspool.load(folder, dtype="fp32", device="cpu", ranks=2)
    assert list(tmp_path.iterdir()) == [broken]
    assert torch.get_num_threads() == threads


COMMAND = [sys.executable, "-m", "unspool", "run", "hello", "--dtype", "fp32", "--device", "cpu", "--ignore-eos"]


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs /proc to see what is left behind")
def test_the_command_writes_the_same_text_and_leaves_no_process_when_it_is_killed(folder, one):
    expected = one.generate("hello", Settings(max_tokens=40, ignore_eos=True)).text.encode()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [*COMMAND, "--model", str(folder), "--ranks", "2", "--max-tokens", "4000"]
    with started(command, stdout=subprocess.PIPE, env=environment) as ran:
        found = ran.stdout.read(20)
        with open(f"/proc/{ran.pid}/task/{ran.pid}/children") as file:
            followers = [int(number) for number in file.read().split()]
        ran.kill()
    assert expected.startswith(found)
    assert len(followers) == 1
    until(lambda: not any(map(running, followers)))


SCRIPT = """
import os, signal, sys, time
import unspool
from unspool.runtime.parallel import team

if sys.argv[2] == "stop":
    team.PATIENCE = team.timedelta(seconds=30)
lm = unspool.load(sys.argv[1], dtype="fp32", device="cpu", ranks=2)
print(*lm.model.network.followers, flush=True)
settings = unspool.Settings(max_tokens=4)
print(*lm.generate("hello", settings).tokens, flush=True)
if sys.argv[2] == "raise":
    raise ValueError("of the program's own")
if sys.argv[2] == "stop":
    os.kill(lm.model.network.followers[0], signal.SIGSTOP)
    lm.generate("hello", settings)
if sys.argv[2] == "again":
    del lm
    lm = unspool.load(sys.argv[1], dtype="fp32", device="cpu", ranks=2)
    print(*lm.generate("hello", settings).tokens, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "code", "said"),
    [
        ("end", 0, ""),
        ("again", 0, ""),
        ("raise", 1, "ValueError: of the program's own"),
        ("stop", 1, "RankLost: The ranks of this model have ended: RuntimeError:"),
    ],
)
def test_a_script_without_a_guard_ends_as_it_would_alone(folder, one, tmp_path, way, code, said):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(folder), way]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=PATIENCE)
    assert ran.returncode == code, ran.stderr
    assert said in ran.stderr
    assert said or not ran.stderr
    follower, *texts = ran.stdout.splitlines()
    expected = " ".join(map(str, one.generate("hello", Settings(max_tokens=4)).tokens))
    assert texts == [expected] * (2 if way == "again" else 1)
    assert not running(int(follower))


@pytest.mark.slow
def test_under_torchrun_the_first_rank_writes(folder, one):
    expected = one.generate("hello", Settings(max_tokens=6, ignore_eos=True)).text
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *COMMAND[1:]]
    command = [*launch, "--model", str(folder), "--ranks", "2", "--max-tokens", "6", "--quiet"]
    ran = subprocess.run(command, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode() == expected


@pytest.mark.slow
def test_the_default_model_is_shared_among_three(smollm2_path, one_thread):
    """Its 9 query heads and 3 key-value heads divide by 3, and GGUF files are cut after they are decoded."""
    checkpoint = open_checkpoint(smollm2_path)
    batch = next(iter(batches(holes=False)))
    expected = Llama.load(checkpoint, torch.float32).forward(batch).logits
    for ranks in (2, 3):
        _, forward = threads(checkpoint, ranks, torch.float32)
        torch.testing.assert_close(forward(batch)[0].logits, expected, rtol=1e-3, atol=1e-3)

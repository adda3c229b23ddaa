"""A trained drafter inside the graph: what it drafts, that texts stay plain decoding's, and that nothing is left."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import interpreted
import pytest
import torch
from test_fewbits import Noise
from test_leaps import Always
from test_rows import left

from unspool.api.trained_draft import examine
from unspool.core.asks import Write
from unspool.core.chance import Philox
from unspool.core.errors import BadScores
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, Tree
from unspool.core.warp import Prefix, Temperature, TopP
from unspool.models.drafters.description import DrafterFile, DrafterSpec, needed
from unspool.models.shape import Shape
from unspool.rules.decode import plain
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_drafter import GraphDrafter
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.drafter.drafter_model import TrainedDrafter, network_of
from unspool.runtime.engine.contracts import LAST, ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import DenseLinear
from unspool.runtime.network.llama import Llama

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, of what kernels mask away
DEVICE = "cpu" if interpreted.INTERPRETED else "cuda"
DIM, VOCAB, SEEN, MOST, DEPTH = 64, 40, 6, 4, 3
LAYER = Shape("llama", 1, DIM, 2, 1, 32, 64, VOCAB, 256, 1e-5, 1e4)
EAGLE3 = DrafterSpec("eagle-3", (0, 1), LAYER, "attend", DIM)
PROMPTS = ((7, 3, 9, 1, 22, 30, 4, 8, 15), (5, 1, 4) * 4, (2, 33, 39, 11, 2, 33, 6))


class Windowed(Noise):
    """A target that sees the last tokens alone, so that a drafter without the first one can know as much."""

    shape = replace(Noise.shape, windows=(SEEN,))
    sure = 4  # of what it says

    def tensor(self, name, dtype):
        made = super().tensor(name, dtype)
        return self.sure * made if name == "model.norm.weight" else made


class Certain(Windowed):
    """One whose best token is nearly certain."""

    sure = 60


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    if interpreted.INTERPRETED:  # it takes its time for every program
        monkeypatch.setattr("unspool.kernels.tiling.MOST_SPLITS", 1)
        monkeypatch.setattr("unspool.kernels.top.CHUNK", 64)
        monkeypatch.setattr("unspool.runtime.cuda.cuda_graph_executor.WIDEST", 16)


def random_file(spec, drafted=24, **extra):
    dice = torch.Generator().manual_seed(3)
    tensors = {
        name: 1 + 0.2 * torch.randn(size, generator=dice)
        if len(size) == 1
        else torch.randn(size, generator=dice) * size[1] ** -0.5
        for name, size in {**needed(spec), "head.weight": (drafted, DIM), **extra}.items()
    }
    if drafted != VOCAB:
        tensors["ids"] = torch.randperm(VOCAB, generator=dice)[:drafted].sort().values
    return DrafterFile(spec, tensors, "random")


def oracle(checkpoint):
    """A drafter that is the target: it reads the embedding alone, and has the target's only layer, norm and head."""
    names = [name for name in checkpoint.shape.tensors() if name.startswith("model.layers.")]
    tensors = {name.removeprefix("model."): checkpoint.tensor(name, torch.float32) for name in names}
    tensors["norm.weight"] = checkpoint.tensor("model.norm.weight", torch.float32)
    tensors["join.weight"] = torch.cat((torch.eye(DIM), torch.zeros(DIM, DIM)), 1)
    spec = DrafterSpec("oracle", (1,), replace(LAYER, windows=(SEEN,)), "project", DIM)
    return DrafterFile(spec, tensors, "oracle")


def loaded(file, checkpoint=None, depth=DEPTH):
    """A model on graphs with this drafter in them, and the drafter of the host's path beside it."""
    network = Fused.load(checkpoint or Windowed(), torch.float32, DEVICE, 600, DenseLinear)
    model = graph_model(network, sequences=8)
    network.slots.keep_states([LAST if n == network.layers else n for n in file.spec.states], network.ends.embedding)
    drafter = network_of(file, network.ends, 400)
    speculation = model.device.speculation
    speculation.gate, speculation.depth = Always(), depth
    assert model.device.draft_with(drafter) is None
    return model, TrainedDrafter(drafter, model)


def written(model, prompts, warp, most, ahead, turns=2):
    """What the device writes on behind these texts, all of them in one batch, and the rounds that took."""
    sessions = [model.open(prompt) for prompt in prompts]
    texts, rounds = [tuple(prompt) for prompt in prompts], []
    while any(len(text) < len(prompt) + most for text, prompt in zip(texts, prompts, strict=True)):
        model.read_ahead([session.leaves[0] for session in sessions])
        writes = [Write(Prefix.of(text, warp), Philox(7, i), most, ahead) for i, text in enumerate(texts)]
        replies = model.device.write([ScoreRequest(session, NOTHING) for session in sessions], writes, turns)
        rounds += [reply.rounds for reply in replies]
        texts = [text + reply.tokens for text, reply in zip(texts, replies, strict=True)]
    for session in sessions:
        session.close()
    return [text[len(prompt) : len(prompt) + most] for text, prompt in zip(texts, prompts, strict=True)], rounds


def plainly(warp):
    """What plain decoding writes behind all prompts, by PyTorch's own kernels."""
    model = CachedModel(Llama.load(Windowed(), torch.float32, DEVICE, 600, DenseLinear))
    engine = Engine({"target": model})
    jobs = [engine.submit(plain(), p, Philox(7, i), warp, Stop(most=MOST)) for i, p in enumerate(PROMPTS)]
    engine.run()
    return [job.result().tokens for job in jobs]


KINDS = {
    "eagle-3": random_file(EAGLE3),
    "the residual normed, states recycled normed": random_file(
        replace(EAGLE3, residual_normed=True, recycles_normed=True, embedding_first=False)
    ),
    "eagle-3.1": random_file(EAGLE3, **{"fuse_norm.0.weight": (DIM,), "fuse_norm.1.weight": (DIM,)}),
    "eagle-1": random_file(
        DrafterSpec("eagle-1", (1,), LAYER, "project", DIM, entry_norm=False), VOCAB, **{"join.bias": (DIM,)}
    ),
    "mtp": random_file(
        DrafterSpec("mtp", (1,), replace(LAYER, qk_norm=True, windows=(4,)), "project", DIM),
        **{"embed_norm.weight": (DIM,), "state_norm.weight": (DIM,), "norm.weight": (DIM,)},
    ),
}


GREEDY = pytest.param(Temperature(0), marks=pytest.mark.slow)
OFTEN = ((4, "eagle-3"),)  # what the others add is theirs


@pytest.mark.parametrize(
    ("kids", "kind"),
    [pytest.param(kids, k, marks=() if (kids, k) in OFTEN else pytest.mark.slow) for kids in (1, 4) for k in KINDS],
)
def test_a_tree_in_the_graph_is_what_the_drafter_holds_likeliest_on_the_hosts_path(kind, kids, monkeypatch):
    """Every law that is read on: by the host's path the same tokens, as likely; and below a level the likeliest."""
    model, host = loaded(KINDS[kind])
    told = []
    own = GraphDrafter.draft

    def noted(self, begun, depth, length):
        ahead = own(self, begun, depth, length)
        told.append((begun.past.clone(), *(part.clone() for part in ahead)))
        return ahead

    monkeypatch.setattr(GraphDrafter, "draft", noted)
    monkeypatch.setattr("unspool.runtime.cuda.graph_drafter.BRANCHES", kids)
    texts, _ = written(model, PROMPTS[:2], Temperature(0), 3, 3)
    assert len(told) >= 2
    for past, tokens, chances, follow in (told[0], told[-1]):
        for row, (prompt, text) in enumerate(zip(PROMPTS, texts, strict=False)):
            whole = (prompt + text)[: int(past[row]) + 1]
            if len(whole) <= int(past[row]):
                continue  # beyond what was wanted
            target, session = model.open(whole), host.open(whole)
            model.score([ScoreRequest(target, NOTHING)])
            host.follow(session, target)
            lines = reached(tokens[row].tolist(), follow[row].tolist())
            assert len(lines) == 1 + (DEPTH - 1) * kids, "the root's law, and those of all nodes below it"
            levels = {}
            for law, path in lines.items():
                (scores,) = host.score([ScoreRequest(session, Tree.chain([chosen(x) for x in path]))])
                laws = [scores.leaf[0], *scores.after]
                odds = [law.scores.double().softmax(-1) for law in laws]
                likely = 1.0
                for p, token in zip(odds, path, strict=False):
                    likely *= float(p[token])
                levels.setdefault(len(path), []).append((likely, odds[-1]))
                best = int(odds[-1].argmax())
                assert best in tokens[row, law].tolist()
                said = float(chances[row, law, tokens[row, law].tolist().index(best)])
                assert 0.9 * float(odds[-1][best]) <= said + 1e-3
            for depth in range(1, DEPTH):
                below = sorted((p * float(x) for p, law in levels[depth - 1] for x in law), reverse=True)
                mine = sorted((p for p, _ in levels[depth]), reverse=True)
                assert mine == pytest.approx(below[:kids], rel=1e-3)
            session.close()
            target.close()


def reached(tokens, follow):
    """The path to every law that some guess is read on by."""
    lines, left_over = {0: ()}, [0]
    while left_over:
        law = left_over.pop()
        for token, below in zip(tokens[law], follow[law], strict=True):
            if below >= 0:
                lines[below] = (*lines[law], token)
                left_over.append(below)
    return lines


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(KINDS["eagle-3"], id="random", marks=pytest.mark.slow),
        pytest.param(oracle(Windowed()), id="oracle"),
    ],
)
@pytest.mark.parametrize("warp", [GREEDY, Temperature(0.8) | TopP(0.9)])
def test_texts_are_those_of_plain_decoding_alone_and_in_a_batch(file, warp):
    model, _ = loaded(file, depth=2)
    expected = plainly(warp)
    for prompts in (PROMPTS, PROMPTS[:1]):
        texts, rounds = written(model, prompts, warp, MOST, 3)
        assert texts == expected[: len(prompts)]
        assert all(rounds)
    assert left(model) == (0, 0)


def test_a_perfect_drafter_brings_its_depth_and_one_more():
    model, _ = loaded(oracle(Certain()), Certain(), depth=4)
    _, rounds = written(model, PROMPTS[::2], Temperature(0), 5, 7)
    assert [[gained for _, gained in some] for some in rounds] == [[5], [5]]


def test_a_perfect_drafter_draws_what_its_target_draws():
    model, _ = loaded(oracle(Windowed()), depth=2)
    _, rounds = written(model, PROMPTS[::2], Temperature(0.8), 3, 7, turns=1)
    assert [[gained for _, gained in some] for some in rounds] == [[3], [3]]


def test_a_drafter_of_nan_drafts_nothing_and_changes_no_text():
    file = oracle(Windowed())
    file.tensors["norm.weight"][3] = float("nan")
    model, _ = loaded(file, depth=2)
    texts, rounds = written(model, PROMPTS[::2], Temperature(0), MOST, 3)
    assert texts == plainly(Temperature(0))[::2]
    assert rounds[0][0].drafted == 0  # nothing is remembered yet, and this text repeats nothing
    assert left(model) == (0, 0)


def test_a_text_that_was_written_without_its_drafter_is_read_before_it_drafts():
    model, _ = loaded(oracle(Certain()), Certain(), depth=4)
    session = model.open(PROMPTS[0])
    text = PROMPTS[0]
    for ahead, expected in ((0, None), (7, [5])):
        model.read_ahead(session.leaves)
        write = Write(Prefix.of(text, Temperature(0)), Philox(7), 5, ahead)
        (reply,) = model.device.write([ScoreRequest(session, NOTHING)], [write], 1 if ahead else 5)
        text += reply.tokens
        assert expected is None or [gained for _, gained in reply.rounds] == expected
    session.close()


def test_a_target_of_nan_ends_its_request_and_the_rounds_after_that_look_up_a_token():
    model, _ = loaded(KINDS["eagle-3"], Noise(broken=True), depth=2)
    session = model.open(PROMPTS[0])
    model.read_ahead(session.leaves)
    write = Write(Prefix.of(PROMPTS[0], Temperature(0)), Philox(7), 4, 3)
    (reply,) = model.device.write([ScoreRequest(session, NOTHING)], [write], 2)
    assert isinstance(reply, BadScores)
    session.close()
    assert left(model) == (0, 0)


def test_a_drafter_is_measured_where_prompts_are_read_without_logits():
    """The report of the self-check: of a drafter that is its target, right nearly everywhere."""
    model, host = loaded(oracle(Certain()), Certain())
    dice = torch.Generator().manual_seed(1)
    text = torch.randint(VOCAB, (40,), generator=dice).tolist()
    words = SimpleNamespace(encode=lambda _: text)
    report = examine(SimpleNamespace(model=model, drafter=host, vocabulary=words, name="noise"))
    assert report.told.tokens > 3
    assert not report.stranger
    assert left(model) == (0, 0)

"""Models that llama.cpp computes keep the session contract: every law is that of the same text read from scratch.

The truth is the native runtime's in float64 on the same file, so the two implementations are held to each other.
"""

from __future__ import annotations

import gc
from importlib.util import find_spec

import pytest
import torch
from contracts import exercise
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

if find_spec("xllamacpp") is None:  # which is not imported: its shared object alone is used
    pytest.skip("the wheel xllamacpp is not installed: pip install 'unspool[llamacpp]'", allow_module_level=True)
pytest.importorskip("gguf", reason="the package gguf, which writes the little files, is not installed")

from tinygguf import VOCAB, tiny_gguf

from unspool.core.errors import BadModel, BadRequest, OutOfRoom
from unspool.core.law import Drawn, Law
from unspool.core.tree import NOTHING, Tree
from unspool.models.weights import open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.uncached_model import UncachedModel
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.llamacpp.llama_context import LlamaContext
from unspool.runtime.llamacpp.open_gguf import load_llamacpp
from unspool.runtime.network.llama import Llama

CLOSE = {"llama": 2e-5, "qwen2": 2e-5, "qwen3": 2e-5, "gemma3": 5e-3}  # llama.cpp looks its GELU up in half precision
HALF = 4e-2  # with keys and values in half precision


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    return {name: tiny_gguf(folder / f"{name}.gguf", name) for name in ("llama", "qwen2", "qwen3", "gemma3")}


def loaded(path, sequences: int = 16, cache: torch.dtype = torch.float32, room: int = 2048, **options) -> CachedModel:
    model, _ = load_llamacpp(path, cache, room=room, sequences=sequences, **options)
    assert isinstance(model, CachedModel)
    return model


class Truth:
    """The law after any text, by the native runtime."""

    def __init__(self, path) -> None:
        self.model = CachedModel(Llama.load(open_checkpoint(path), torch.float64, "cpu", 1024), prefix_cache=1)
        self.laws: dict[tuple[int, ...], torch.Tensor] = {}

    def __call__(self, text: tuple[int, ...]) -> torch.Tensor:
        if text not in self.laws:
            session = self.model.open(text)
            (scores,) = self.model.score([ScoreRequest(session, NOTHING)])
            session.close()
            self.laws[text] = scores.leaf[0].scores
        return self.laws[text]


def chain(*tokens: int) -> Tree:
    return Tree.chain([Drawn(x, Law.point(x)) for x in tokens])


@pytest.mark.parametrize(
    ("name", "sequences", "cache"),
    [
        *(pytest.param(name, 64, torch.float32, marks=() if name == "llama" else pytest.mark.slow) for name in CLOSE),
        ("llama", 8, torch.float32),
        ("gemma3", 16, torch.float32),
        ("llama", 64, torch.float16),
    ],
)
def test_sessions_equal_recomputation_and_leave_nothing_behind(files, name, sequences, cache):
    """Trees = chains, keeps = recomputation, batches = alone, forks = copies, in drawn programs; windows are passed.

    With few sequences they are taken from each other, and lost cells are computed again.
    """
    model, truth = loaded(files[name], sequences, cache), Truth(files[name])

    @given(st.data())
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def programs(data):
        model.forget()  # what is computed depends on what is held
        before = model.slots.in_use  # of programs that were given up in the middle
        exercise(data, model, truth, CLOSE[name] if cache == torch.float32 else HALF, vocab=VOCAB, longest=8)
        assert model.slots.in_use == before

    programs()


def test_models_with_a_state_equal_recomputation(tmp_path):
    """Their sequences cannot be cut; copies stand at the places that texts go on from."""
    path = tiny_gguf(tmp_path / "lfm2.gguf", "lfm2")
    model, _ = load_llamacpp(path, torch.float32, room=512)
    fresh, _ = load_llamacpp(path, torch.float32, room=512)
    assert isinstance(model, UncachedModel)
    assert isinstance(fresh, UncachedModel)
    laws: dict[tuple[int, ...], torch.Tensor] = {}

    def truth(text: tuple[int, ...]) -> torch.Tensor:
        if text not in laws:
            for number in fresh.reader._texts:
                fresh.reader._drop(number)
            laws[text] = fresh.reader.read(torch.tensor([text]), torch.tensor([len(text) - 1]), ()).logits[0]
        return laws[text]

    @given(st.data())
    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    def programs(data):
        exercise(data, model, truth, 2e-5, vocab=VOCAB, longest=8)

    programs()


@pytest.mark.parametrize("slip", ["rejected drafts stay", "siblings are seen"])
def test_the_contract_catches(files, slip, monkeypatch):
    model, truth = loaded(files["llama"]), Truth(files["llama"])
    if slip == "rejected drafts stay":
        monkeypatch.setattr(LlamaContext, "cut", lambda self, sequence, size: True)
    else:
        monkeypatch.setattr("unspool.runtime.llamacpp.executor._tips", lambda request: [list(range(len(request)))])

    @given(st.data())
    @settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])
    def programs(data):
        exercise(data, model, truth, CLOSE["llama"], vocab=VOCAB, longest=8)

    with pytest.raises(Exception):  # noqa: B017  (which of its checks sees it first does not matter)
        programs()


@pytest.mark.parametrize("pairs", [True, False])
def test_cells_that_left_a_window_are_there_for_texts_that_go_on_before_it(files, pairs):
    """llama.cpp gives cells away that have left the window of their only sequence: so each must have two."""
    model, truth = loaded(files["gemma3"]), Truth(files["gemma3"])
    if not pairs:
        model.network.llama._each = 1
    before, long = model.open((1, 2, 3)), tuple(range(20))
    for session in (before, kept := model.open(long)):
        model.score([ScoreRequest(session, NOTHING)])
    before.close()  # whose cells lie before those of the long text, so that the next search begins there
    model.score([ScoreRequest(model.open((7,) * 12), NOTHING)])
    again = model.open((*long[:10], 21))
    (scores,) = model.score([ScoreRequest(again, NOTHING)])
    assert scores.rows == 1  # the rest is shared with the text that is kept
    off = float((scores.law(-1).scores - truth((*long[:10], 21))).abs().max())
    assert off < CLOSE["gemma3"] if pairs else off > 0.1
    kept.close()


def test_a_prompt_and_a_tree_larger_than_one_call(tmp_path):
    """700 tokens are more than a batch, 126 nodes more than the outputs of a call."""
    path = tiny_gguf(tmp_path / "long.gguf", context=1024)
    model, truth = loaded(path, 64), Truth(path)
    text = tuple((i * i + 3 * i) % VOCAB for i in range(700))
    tree = NOTHING
    for token in range(VOCAB):
        tree, _ = tree.grow(Drawn(token, Law.point(token)), ~0)
    for under in range(VOCAB):
        for token in (under, (under + 1) % VOCAB):
            tree, node = tree.grow(Drawn(token, Law.point(token)), under)
            if token != under:
                tree, _ = tree.grow(Drawn(token, Law.point(token)), node)
    session = model.open(text)
    (scores,) = model.score([ScoreRequest(session, tree)])
    assert len(tree) > 90
    for node in range(-1, len(tree)):
        want = truth(text + tree.tokens(tree.path(node)))
        assert torch.allclose(scores.law(node).scores.double(), want, atol=2e-4)


def test_too_many_branches_are_refused_before_any_work(files):
    model, truth = loaded(files["llama"], 8), Truth(files["llama"])
    session = model.open((3, 4))
    model.score([ScoreRequest(session, NOTHING)])
    tree = NOTHING
    for token in range(12):
        tree, _ = tree.grow(Drawn(token, Law.point(token)), ~0)
    with pytest.raises(OutOfRoom, match=r"12 ends.*has 7"):
        model.score([ScoreRequest(session, tree)])
    assert model.slots.in_use == 2
    (scores,) = model.score([ScoreRequest(session, chain(5, 6))])
    assert torch.allclose(scores.law(1).scores.double(), truth((3, 4, 5, 6)), atol=2e-5)


def test_many_texts_take_sequences_from_each_other(files):
    """Twenty texts on eight sequences: their forwards go in groups, and what was lost is computed again."""
    model, truth = loaded(files["llama"], 8), Truth(files["llama"])
    texts = [(i, i + 1, 2 * i % VOCAB) for i in range(20)]
    sessions = [model.open(text) for text in texts]
    for turn in range(2):
        tree = chain(turn, 5)
        for text, scores in zip(texts, model.score([ScoreRequest(s, tree) for s in sessions]), strict=True):
            assert torch.allclose(scores.law(1).scores.double(), truth((*text, turn, 5)), atol=2e-5)
        for session in sessions:
            session.keep(tree, (0,), (None,))
        texts = [(*text, turn) for text in texts]
    for session in sessions:
        session.close()
    assert model.slots.in_use == 0


def test_a_full_cache_is_an_error_before_any_work_is_lost(files):
    model = loaded(files["llama"], room=6)
    session = model.open((1, 2, 3))
    model.score([ScoreRequest(session, NOTHING)])
    with pytest.raises(OutOfRoom, match="3 of 6 slots"):
        model.score([ScoreRequest(session, chain(1, 1, 1, 1))])
    assert model.slots.in_use == 3
    model.score([ScoreRequest(session, chain(1, 1, 1))])


def test_cells_of_texts_that_are_gone_hold_others(files):
    """What nobody uses any more is cut off llama.cpp's sequences, or its cache would be full of it."""
    model = loaded(files["llama"], room=256)
    for first in range(5):  # each with 100 cells, on 16 sequences
        session = model.open([(first + i * i) % VOCAB for i in range(100)])
        model.score([ScoreRequest(session, chain(1, 2))])
        session.close()
    assert model.slots.in_use == 0


def test_a_failing_call_leaves_the_session_as_it_was(files, monkeypatch):
    model, truth = loaded(files["llama"]), Truth(files["llama"])
    session = model.open((3, 4))
    model.score([ScoreRequest(session, NOTHING)])
    call = LlamaContext._call

    def failing(self, count):
        call(self, count)
        raise BadModel("no")

    monkeypatch.setattr(LlamaContext, "_call", failing)
    with pytest.raises(BadModel):
        model.score([ScoreRequest(session, chain(5, 6))])
    monkeypatch.setattr(LlamaContext, "_call", call)
    assert model.slots.in_use == 2
    (scores,) = model.score([ScoreRequest(session, chain(5, 7))])
    assert torch.allclose(scores.law(1).scores.double(), truth((3, 4, 5, 7)), atol=2e-5)


def test_laws_that_are_held_outlive_the_next_call_and_the_model(files):
    """Rows of logits stay where llama.cpp has them until somebody looks, and it writes the next ones there."""
    model, truth = loaded(files["llama"]), Truth(files["llama"])
    session = model.open((3, 4))
    (first,) = model.score([ScoreRequest(session, chain(5, 6))])
    session.keep(chain(5, 6), (1,), (7,))
    (second,) = model.score([ScoreRequest(session, NOTHING)])
    model.network.llama.close()
    for law, text in ((first.leaf[0], (3, 4)), (first.after[1], (3, 4, 5, 6)), (second.leaf[0], (3, 4, 5, 6, 7))):
        want = truth(text)
        assert torch.allclose(law.scores.double(), want, atol=2e-5)
        assert law.best == int(want.argmax())
    best = [[token for token, _ in row] for row in first.best(3)]
    assert best == [truth(text).topk(3).indices.tolist() for text in ((3, 4), (3, 4, 5), (3, 4, 5, 6))]


def test_what_leaves_the_last_norm_is_the_native_runtimes_too(files):
    model = loaded(files["llama"])
    native = CachedModel(Llama.load(open_checkpoint(files["llama"]), torch.float64, "cpu", 512))
    asked = [ScoreRequest(m.open((3, 4, 5, 6)), chain(7, 8), ("hidden:-1", "prompt:3")) for m in (model, native)]
    (ours,), (theirs,) = model.score(asked[:1]), native.score(asked[1:])
    assert torch.allclose(ours.hidden["hidden:-1"].double(), theirs.hidden["hidden:-1"], atol=2e-5)
    assert torch.allclose(ours.law(1).scores.double(), theirs.law(1).scores, atol=2e-5)
    told = [{place: [token for token, _ in best] for place, best in scores.tops.items()} for scores in (ours, theirs)]
    assert told[0] == told[1]
    assert len(told[0]) == 3
    (plain,) = model.score([ScoreRequest(asked[0].session, chain(7, 9))])  # and without them again
    assert torch.allclose(plain.law(1).scores.double(), Truth(files["llama"])((3, 4, 5, 6, 7, 9)), atol=2e-5)
    with pytest.raises(BadRequest, match=r"hidden:-1.*not hidden:1"):
        model.score([ScoreRequest(model.open((3,)), NOTHING, ("hidden:1",))])


def test_threads_are_torchs_and_memory_is_freed(files):
    model = loaded(files["llama"])
    session = model.open((3, 4))
    torch.set_num_threads(2)
    model.score([ScoreRequest(session, NOTHING)])
    torch.set_num_threads(1)
    context = model.network.llama
    assert context._library.llama_n_threads(context.context) == 2
    freed = context._free
    del model, session, context
    gc.collect()
    assert not freed.alive

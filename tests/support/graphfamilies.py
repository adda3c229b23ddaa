"""What must hold for a family's little model on CUDA graphs: in Triton's interpreter, or on a GPU."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.support.families import text
from unspool.core.chance import Philox
from unspool.core.law import Drawn, Law
from unspool.core.stop import Stop
from unspool.core.tree import NOTHING, Tree
from unspool.core.warp import Temperature
from unspool.models.weights import Checkpoint, open_checkpoint
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cuda.batch_invariant_fused import BatchInvariantFused
from unspool.runtime.cuda.fused import Fused
from unspool.runtime.cuda.graph_model import graph_model
from unspool.runtime.engine.contracts import ScoreRequest
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.linear import DenseLinear, dense
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.quantised import WHOLE, rounded

ROOM = 64


def drafted(*nodes: tuple[int, int]) -> Tree:
    """A tree of tokens, each under one of the nodes before it, or under the text (−1)."""
    tree = NOTHING
    for token, under in nodes:
        tree, _ = tree.grow(Drawn(token, Law.point(token)), under)
    return tree


BRANCHES = drafted((5, -1), (6, 0), (8, -1))


def laws(model: CachedModel, start: list[int], tree: Tree) -> torch.Tensor:
    """The scores after a text and after every node of a tree below it."""
    session = model.open(start)
    found = model.score([ScoreRequest(session, tree)])[0]
    rows = torch.stack([law.scores.float().cpu() for law in (found.leaf[0], *found.after)])
    session.close()
    model.forget()
    return rows


def off(checkpoint: Checkpoint, dtype: torch.dtype, device: str, size: int) -> tuple[float, float]:
    """How far the kernels' scores of a tree behind a text are from the network's own in float32; and its own, rounded.

    Eight texts, so that near ties of experts are among them.
    """
    exact, rough = (CachedModel(Llama.load(checkpoint, kind, device, ROOM)) for kind in (torch.float32, dtype))
    ours = graph_model(Fused.load(checkpoint, dtype, device, ROOM), sequences=8)
    told = [[laws(model, text(seed, size).tolist(), BRANCHES) for seed in range(8)] for model in (exact, ours, rough)]
    found = [
        torch.stack([(a - b).abs().max() for a, b in zip(told[0], some, strict=True)]).median() for some in told[1:]
    ]
    return float(found[0]), float(found[1])


def graphs(folder: Path, size: int = 5, kind: str = WHOLE) -> None:
    """In float32, a tree behind a text longer than any window has the scores of the network without kernels."""
    checkpoint = open_checkpoint(folder)
    start = text(0, size).tolist()
    make, plain = (rounded(kind, each, checkpoint.shape.vocab) for each in (DenseLinear, dense))
    ours = graph_model(Fused.load(checkpoint, torch.float32, "cpu", ROOM, make), sequences=8)
    theirs = CachedModel(Llama.load(checkpoint, linear=plain))
    far = (laws(ours, start, BRANCHES) - laws(theirs, start, BRANCHES)).abs().max()
    assert far < 1e-4, f"off by {float(far)}"


def invariant_graphs(folder: Path, size: int = 5) -> None:
    """With fixed shapes the bits of a law are the same behind a prompt, in a tree, and beside another text."""
    model = graph_model(BatchInvariantFused.load(open_checkpoint(folder), torch.float32, "cpu", ROOM), sequences=8)
    start = text(0, size).tolist()
    tree = laws(model, start, BRANCHES)
    assert torch.equal(laws(model, [*start, 5, 6], NOTHING)[0], tree[2])
    sessions = [model.open(start), model.open([*start[:4], 5])]
    both = model.score([ScoreRequest(session, NOTHING) for session in sessions])
    assert torch.equal(both[0].leaf[0].scores.float(), tree[0])


def texts(
    model: CachedModel, specs: list[str], prompts: list[list[int]], most: int, temperature: float
) -> list[list[int]]:
    """What these methods write behind these prompts, all at once."""
    engine = Engine({"target": model})
    jobs = [
        engine.submit(method(spec), tuple(prompt), Philox(5), Temperature(temperature), Stop(most=most), laws=False)
        for spec, prompt in zip(specs, prompts, strict=True)
    ]
    engine.run()
    model.forget()
    return [list(job.result().tokens) for job in jobs]

"""Every family on several ranks is the family on one: experts, latents, sinks, gates, and states behind drafts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch
from patience import PATIENCE
from selection import crossed
from test_ranks import Dice, batches, threads

from tests.support.families import FAMILIES, Family, told
from tests.support.familyfolders import speaking
from unspool import Settings, load
from unspool.core.chance import Philox
from unspool.core.errors import BadRequest, RankLost
from unspool.core.stop import Stop
from unspool.core.warp import Temperature
from unspool.models.config import read_config
from unspool.models.share import RankCheckpoint, RankShare, divided, refuse
from unspool.recipes.methods import method
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.cache.checkpoint_pool import CheckpointPool, RecurrentPool
from unspool.runtime.engine.engine import Engine
from unspool.runtime.network.llama import Llama
from unspool.runtime.parallel.ranks import _pool
from unspool.runtime.parallel.team import perform

pytestmark = pytest.mark.usefixtures("one_thread")
BY_KIND = {family.kind: family for family in FAMILIES}


def shape_of(family: Family):
    return read_config(told(family), "config.json")


def far(shape, ranks):
    """The largest difference of logits, in float64, between so many ranks and one, after a prompt and in a tree."""
    whole = Llama.load(Dice(shape), torch.float64)
    _, forward = threads(Dice(shape), ranks)
    found = [0.0]
    for batch in batches(holes=False):
        expected = whole.forward(batch).logits
        assert expected.abs().max() > 0.1
        found += (float((share.logits - expected).abs().max()) for share in forward(batch))
    return max(found)


@pytest.mark.parametrize("family", crossed(FAMILIES, quick=2, name=lambda family: family.title))
def test_shares_of_a_family_together_are_the_network(family):
    assert far(shape_of(family), 2) < 1e-9


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma4_text", "deepseek_v3"])
def test_so_are_four_which_hold_some_keys_twice(kind):
    assert far(shape_of(BY_KIND[kind]), 4) < 1e-9


BUGS = {
    "sinks of other heads": ("gpt_oss", lambda patch: patch.setattr(RankCheckpoint, "_heads", _first_sinks)),
    "no sum behind experts": (
        "qwen3_moe",
        lambda patch: patch.setattr("unspool.runtime.parallel.sharded.RowParallelExperts", lambda experts, _: experts),
    ),
    "a bias of experts from every rank": (
        "gpt_oss",
        lambda patch: patch.setattr("unspool.models.share.torch.zeros_like", lambda x: x),
    ),
    "heads cut though a norm goes over all": (
        "olmo2",
        lambda patch: [patch.setattr(f"unspool.{m}.divided", lambda spec: True) for m in PLACES],
    ),
}
PLACES = ("models.share", "runtime.parallel.sharded")


def _first_sinks(self, part, spec, found=RankCheckpoint._heads):
    rows = found(self, part, spec)
    return range(len(rows)) if part == "sinks" else rows


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_the_sharing_of_a_family_shows(bug, monkeypatch):
    kind, plant = BUGS[bug]
    plant(monkeypatch)
    with pytest.raises((AssertionError, RuntimeError)):
        assert far(shape_of(BY_KIND[kind]), 2) < 1e-6


def test_ranks_hold_their_part_of_experts_and_whole_what_is_not_shared():
    experts = shape_of(BY_KIND["qwen3_moe"])
    part = RankCheckpoint(Dice(experts), RankShare(1, 2))
    assert part.tensor("model.layers.0.mlp.experts.3.down_proj.weight").shape == (32, 8)
    assert part.tensor("model.layers.0.mlp.gate.weight").shape == (5, 32)
    states = shape_of(BY_KIND["lfm2"])
    assert [divided(layer.mixer) for layer in states.stack] == [False, True, False]
    sizes = RankShare(1, 2).shape(states).tensors()
    part = RankCheckpoint(Dice(states), RankShare(1, 2))
    assert all(part.tensor(name).shape == size for name, size in sizes.items() if not name.startswith("lm_head"))


def test_experts_that_are_too_narrow_are_refused_with_numbers():
    shape = shape_of(BY_KIND["qwen3_moe"])
    narrow = replace(shape.mixture, hidden=1)
    each = tuple(replace(layer, mixture=narrow if layer.mixture else None) for layer in shape.each)
    with pytest.raises(BadRequest, match="2 ranks cannot share 1 hidden numbers"):
        refuse(replace(shape, mixture=narrow, each=each), 2)


# ---- decoding


class InThreads:
    """A network on ranks that are threads: everything that rank 0 is told to do, all of them do."""

    def __init__(self, checkpoint, ranks):
        self.shards, _ = threads(checkpoint, ranks)
        self.pool = ThreadPoolExecutor(ranks)
        first = self.shards[0]
        self.shape, self.vocab, self.context, self.layers = checkpoint.shape, first.vocab, first.context, first.layers
        self.slots = _pool(first.slots, self.do)

    def do(self, work):
        first, *_ = self.pool.map(lambda shard: perform(shard, work), self.shards)
        return first

    def forward(self, batch):
        self.shards[0].check(batch)
        return self.do(batch)


def texts(network):
    """What several methods write at once, and then again behind what is kept of it."""
    model, found = CachedModel(network, prefix_cache=2), []
    for seed in (3, 4):
        engine = Engine({"target": model})
        jobs = [
            engine.submit(method(spec), prompt, Philox(seed), Temperature(0.9), Stop(most=14), laws=False)
            for spec, prompt in (
                ("plain", (5, 6, 7, 5, 6)),
                ("lookup:ngram=1,least=1", (5, 6, 7, 5, 6, 7, 5)),
                ("recycle:nodes=6", (9, 8)),
            )
        ]
        engine.run()
        found += [tuple(job.result().tokens) for job in jobs]
    return found


@pytest.mark.parametrize("kind", ["lfm2_moe", "nemotron_h", "qwen3_next", "gemma4_text", "glm4_moe_lite"])
def test_texts_of_a_family_are_those_of_one_rank(kind):
    shape = shape_of(BY_KIND[kind])
    shared = InThreads(Dice(shape), 2)
    assert texts(shared) == texts(Llama.load(Dice(shape), torch.float64))
    if shape.recurrent:
        held = [(dict(s.slots.checkpoints._passing), dict(s.slots.checkpoints._lasting)) for s in shared.shards]
        assert held[0] == held[1]
        assert held[0] != ({}, {})


def test_states_behind_slots_that_are_free_are_dropped_on_every_rank():
    """Else the ranks would give way to new states in another order, and go on from different ones."""
    told_of = []
    pool = _pool(RecurrentPool(8, CheckpointPool(4)), told_of.append)
    slots = pool.take(3)
    pool.checkpoints.take((), slots[:1], ())
    pool.share(slots[:1])
    pool.drop(slots)
    assert told_of == []  # the one with a state has another user
    pool.drop(slots[:1])
    assert [list(work.slots) for work in told_of] == [slots[:1]]


def test_a_text_can_be_closed_when_the_ranks_are_lost():
    def lost(work):
        raise RankLost("gone")

    pool = _pool(RecurrentPool(8, CheckpointPool(4)), lost)
    slots = pool.take(2)
    pool.checkpoints.take((), slots, ())
    pool.drop(slots)
    assert pool.in_use == 0


# ---- processes


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install '.[ray]'")
def test_a_worker_of_ray_shares_its_model_among_ranks(tmp_path):
    folder, asked = speaking(BY_KIND["qwen3_moe"], tmp_path / "model"), tmp_path / "asked.jsonl"
    lines = [{"prompt": prompt, "max_tokens": 8, "temperature": 0} for prompt in ("abc abc", "hello", "x y z")]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = []
    for number, ways in enumerate(([], ["--ray", "--workers", "1", "--cpus", "2", "--ranks", "2"])):
        answers = tmp_path / f"answers{number}.jsonl"
        command = [sys.executable, "-m", "unspool", "batch", str(asked), str(answers), "--model", str(folder)]
        command += ["--dtype", "fp32", "--device", "cpu", *ways]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        ran = subprocess.run(command, capture_output=True, env=environment, timeout=PATIENCE)
        assert ran.returncode == 0, ran.stderr
        told_us = map(json.loads, answers.read_text().splitlines())
        found.append([line["response"]["body"]["choices"][0]["text"] for line in told_us])
    assert found[0] == found[1]
    assert len(set(found[0])) == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["qwen3_moe", "lfm2_moe", "deepseek_v3"])
def test_under_torchrun_a_family_writes_what_one_process_does(kind, tmp_path):
    folder = speaking(BY_KIND[kind], tmp_path)
    settings = Settings(max_tokens=12, ignore_eos=True)
    expected = load(folder, dtype="fp32", device="cpu").generate("again and again", settings, "lookup", raw=True).text
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "unspool"]
    asked = ["run", "again and again", "--raw", "--method", "lookup", "--model", str(folder), "--max-tokens", "12"]
    asked += ["--dtype", "fp32", "--device", "cpu", "--ignore-eos", "--ranks", "2", "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*launch, *asked], capture_output=True, env=environment, timeout=PATIENCE)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.decode() == expected

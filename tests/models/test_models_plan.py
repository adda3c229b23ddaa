"""Memory plans: sums of what the shape says, before anything is loaded."""

from __future__ import annotations

import pytest
import torch
from packing import write_packed

from unspool.api.memory_plan import MemoryPlan, available_bytes, plan, weight_bytes
from unspool.core.errors import BadRequest
from unspool.models.shape import Shape

SHAPE = Shape("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e-5, 1e5, tied=True)


def test_a_plan_is_a_sum():
    found = plan(SHAPE, torch.bfloat16, 1000, rows=4, tree=23)
    assert found.weights == 134_515_008 * 2
    assert found.kv == 4 * (1000 + 24) * 23_040
    assert found.logits == 2 * 4 * 24 * 49152 * 4
    assert found.total == found.weights + found.kv + found.logits + found.activations
    assert plan(SHAPE, torch.bfloat16).kv > found.kv, "the whole context by default"


def test_the_table_is_aligned():
    lines = MemoryPlan(10**9, 2 * 10**6, 10**6, 10**5, 0, 10**9, "cpu", "note").table().splitlines()
    assert lines[0] == "note"
    assert lines[-1].startswith("It does not fit")
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert MemoryPlan(1, 1, 1, 1, 0, None, "meta", "note").fits is None
    assert MemoryPlan(1, 1, 1, 1, 0, 9, "cpu", "note").table().endswith("It fits.")


def test_the_machine_says_what_it_has():
    assert (available_bytes(torch.device("cpu")) or 0) > 1 << 20
    assert available_bytes(torch.device("meta")) is None


@pytest.mark.parametrize("wrong", [{"context": 0}, {"rows": 0}, {"tree": -1}])
def test_plans_for_nothing_are_refused(wrong):
    with pytest.raises(BadRequest, match="expected at least 1"):
        plan(SHAPE, torch.float32, **{"context": 8, **wrong})


def test_few_bits_are_counted_as_they_are_kept():
    whole, eight, four = (weight_bytes(SHAPE, torch.bfloat16, kind) for kind in ("none", "int8", "int4"))
    outside = 49152 * 576 * 2
    assert whole == 134_515_008 * 2
    assert outside + (whole - outside) / 2 < eight < outside + 0.52 * (whole - outside)
    # 5 bits a weight with what groups share, and rows of 576 are filled up to 640
    assert outside + (whole - outside) / 4 < four < outside + 0.35 * (whole - outside)
    assert plan(SHAPE, torch.bfloat16, quantization="int4").weights == four
    with pytest.raises(BadRequest, match="choose one of: auto, packed, none, int8, int4"):
        plan(SHAPE, torch.bfloat16, quantization="int3")


def test_on_a_gpu_graphs_tables_and_workspaces_are_counted():
    """By hand for 8 texts of 1,000 tokens in bfloat16 with trees of 31 nodes."""
    found = plan(SHAPE, torch.bfloat16, 1000, rows=8, tree=31, device="cuda")
    room = 8 * 1032
    assert found.kv == room * 23_040
    assert found.logits == 3 * 8 * 32 * 49152 * 2
    assert found.activations == 2 * (8 * 1024 * (2 * 576 + 3 * 1536) * 2 + 264 * 128 * 4 * 64)
    lanes, turns, workspaces = 517 * 8192 * 4, 2 * 8192 * 64 * 4, 3 * 32 * 2**20
    drafts = 65 * 8192 * 4 + (1 << 17) * 72
    assert found.tables == lanes + drafts + 2 * 8 * 2048 * 4 + turns + workspaces
    assert plan(SHAPE, torch.bfloat16, 1000, rows=8, tree=31).tables == 0


def test_packed_weights_take_what_the_file_has_and_a_token_reads_all_but_a_table_that_is_no_head(tmp_path):
    for tied in (True, False):
        file = write_packed(tmp_path / f"{tied}.gguf", "llama", tied=tied)
        found = plan(file, torch.float32, 64, quantization="packed")
        sizes = {name: entry.bytes for name, entry in file.file.directory.items()}
        assert found.weights == sum(sizes.values())
        assert found.per_token == found.weights - (0 if tied else sizes["token_embd.weight"])
        assert f"Each token reads {found.per_token / 1e6:,.1f} MB of weights." in found.table()
        assert plan(file, torch.float32, 64).per_token == 4 * (file.shape.parameters - (0 if tied else 97 * 256))

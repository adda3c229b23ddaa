"""Memory plans: sums of what the shape says, before anything is loaded."""

from __future__ import annotations

import pytest
import torch

from unspool.errors import BadRequest
from unspool.models.plan import Plan, available_bytes, plan
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
    lines = Plan(10**9, 2 * 10**6, 10**6, 10**5, 10**9, "cpu", "note").table().splitlines()
    assert lines[0] == "note"
    assert lines[-1].startswith("It does not fit")
    assert len({len(line) for line in lines[1:-1]}) == 1
    assert Plan(1, 1, 1, 1, None, "meta", "note").fits is None
    assert Plan(1, 1, 1, 1, 9, "cpu", "note").table().endswith("It fits.")


def test_the_machine_says_what_it_has():
    assert (available_bytes(torch.device("cpu")) or 0) > 1 << 20
    assert available_bytes(torch.device("meta")) is None


@pytest.mark.parametrize("wrong", [{"context": 0}, {"rows": 0}, {"tree": -1}])
def test_plans_for_nothing_are_refused(wrong):
    with pytest.raises(BadRequest, match="expected at least 1"):
        plan(SHAPE, torch.float32, **{"context": 8, **wrong})

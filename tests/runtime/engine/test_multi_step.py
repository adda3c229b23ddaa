"""How many tokens a device writes before anybody looks."""

import math
from types import SimpleNamespace

import pytest

from unspool.core.asks import Write
from unspool.core.chance import Philox
from unspool.core.warp import Prefix, Same, Temperature
from unspool.runtime.engine.model_runner import BRIEF, LONGEST, MultiStep

SAME = Same()
DEVICES = {"target": SimpleNamespace(can_write=lambda write: write.prefix.warp is SAME)}


def job(patience=math.inf, first=0.0, writes=True, warp=SAME):
    ask = Write(Prefix.of((1,), warp), Philox(0))
    return SimpleNamespace(patience=patience, writes=writes, ask=ask, trace=SimpleNamespace(seconds_first=first))


@pytest.mark.parametrize(("held", "mixed", "most"), [(False, False, LONGEST), (False, True, BRIEF), (True, False, 1)])
def test_who_waits_for_a_forward_makes_it_brief(held, mixed, most):
    steps = MultiStep(DEVICES)
    steps.plan(held, mixed)
    assert steps.tokens([job()]) == most


def test_nobody_who_looks_on_waits_longer_than_it_said():
    steps = MultiStep(DEVICES)
    steps.took(0.32, 32)
    assert steps.tokens([job(0.1)]) == 10
    assert steps.tokens([job(0.1), job(0.05), job()]) == 5
    assert steps.tokens([job(1e-9)]) == 1
    assert steps.tokens([job(0.1), job(0.1, first=None)]) == 1


def test_only_who_writes_on_a_device_goes_on():
    steps = MultiStep(DEVICES)
    assert steps.takes(job(), "target")
    assert not steps.takes(job(), "draft")
    assert not steps.takes(job(writes=False), "target")
    assert not steps.takes(job(warp=Temperature(0.5)), "target")  # of which this device knows nothing

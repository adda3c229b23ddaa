"""Auto on recorded texts of six families, whose rounds take what a CPU's do: it never loses, and finds what pays."""

from __future__ import annotations

from statistics import mean

import pytest
from replayed import AVX2, AVX512, families, replayed

FIXED = ("lookup:depth=3", "lookup:depth=7", "suffix:depth=3", "merge:nodes=3")
MACHINES = {"avx2": AVX2, "avx512": AVX512}


@pytest.fixture(scope="module", params=MACHINES)
def gains(request):
    """How many times as fast as plain decoding methods are on every text of one machine."""
    cost, patch = MACHINES[request.param], pytest.MonkeyPatch()
    plain = {name: replayed(text, "plain", cost, patch)[0] for name, text in families().items()}

    def gained(spec, heads=True):
        return {name: plain[name] / replayed(text, spec, cost, patch, heads)[0] for name, text in families().items()}

    return gained


def test_there_are_six_families():
    assert len(families()) == 6


@pytest.mark.parametrize("heads", [True, False], ids=["heads", "no heads"])
def test_auto_loses_nowhere(gains, heads):
    found = gains("auto", heads)
    assert min(found.values()) >= 0.97, found


def test_with_heads_auto_is_ahead_of_every_fixed_method_and_of_plain_decoding_on_each_text(gains):
    ours = gains("auto")
    assert min(ours.values()) >= 1.05, ours
    for spec in FIXED:
        assert mean(ours.values()) >= mean(gains(spec).values()), spec


def test_without_heads_auto_is_near_the_best_copies(gains):
    best = max(mean(gains(spec).values()) for spec in FIXED)
    assert mean(gains("auto", heads=False).values()) >= 0.95 * best

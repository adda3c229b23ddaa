"""The engine's clock in the hands of a test."""

import pytest
from ticking import Clock


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("engine", "turns", "job", "model_runner"):
        monkeypatch.setattr(f"unspool.runtime.engine.{module}.perf_counter", made)
    return made

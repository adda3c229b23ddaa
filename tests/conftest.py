"""Shared by all tests: the default model, fetched once into the user's own cache and loaded once."""

import functools
import gc
import os
import sys
import typing

import hypothesis
import pytest
import torch
from lastpassed import pytest_addoption as pytest_addoption
from lastpassed import pytest_configure as pytest_configure
from signals import restore

from unspool.core.errors import FetchFailed

restore()  # before anything starts a process, which would inherit it

gc.disable()  # while half a million objects come and stay


def pytest_collection_finish():
    gc.freeze()  # modules and tests: nobody need look through them again and again
    gc.enable()


if sys.version_info < (3, 12):  # which looks up once what a protocol asks for, and not at every `isinstance`
    typing._get_protocol_attrs = functools.cache(typing._get_protocol_attrs)

if "PYTEST_XDIST_WORKER" in os.environ:  # two workers have a core each, and so have the programs that they start
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
else:
    torch.set_num_threads(2)

if not torch.cuda.is_available():  # before anything imports Triton, which reads it once
    os.environ.setdefault("TRITON_INTERPRET", "1")

# How long an example takes depends on who else is at work on the machine: a test that hangs is ended by its own limit.
hypothesis.settings.register_profile("people", deadline=None)
# In CI the same examples every time: a new one is found by people at work, not by a build that fails by chance.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
# For `scripts/mutate`: the same examples every time, and no search for a smaller one, since any will do.
phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", derandomize=True, deadline=None, phases=phases, print_blob=False)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "people")


@pytest.fixture(scope="session")
def smollm2_path():
    """The default model's file; tests that need it are skipped where it cannot be had, except in CI."""
    from unspool.models.address import path

    try:
        return path("smollm2")
    except FetchFailed as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"the default model is not here and cannot be fetched: {error}")


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """The default model with its heads, as a CPU runs it: natively, its weights packed."""
    import unspool
    from unspool.models.address import heads_of

    return unspool.load(str(smollm2_path), quantization="packed", device="cpu", heads=heads_of("smollm2"))


@pytest.fixture(scope="session")
def smollm2_fp32(smollm2_path):
    """The same with whole weights: what it computes is what transformers does, up to rounding."""
    import unspool

    return unspool.load(str(smollm2_path), dtype="fp32", device="cpu")


@pytest.fixture
def here(capsys, monkeypatch, tmp_path_factory):
    """The command inside this process: (exit status, stdout, stderr). Quick, since torch is here already."""
    from unspool.apps.cli import main

    # The command sets these where they are not set; so they are taken back afterwards.
    monkeypatch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", str(tmp_path_factory.getbasetemp() / "hypothesis"))
    monkeypatch.setenv("TQDM_DISABLE", "1")

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return call


@pytest.fixture
def loaded(here, smollm2, monkeypatch):
    """The same with the default model already loaded, so that a run takes no time to load it."""
    monkeypatch.setattr("unspool.api.loader.load", lambda name, **options: smollm2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield here
    torch.set_num_threads(threads)


@pytest.fixture
def one_thread():
    """Threads that wait for each other on a busy machine are ten times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

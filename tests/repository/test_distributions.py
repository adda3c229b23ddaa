"""What is installed by itself: what it adds when it is there, and what is said when it is not."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points, version

import click
import pytest
from click.testing import CliRunner
from repository import ROOT

import unspool
from unspool.apps.cli import root as plugins
from unspool.apps.cli.loading import Loading
from unspool.apps.cli.root import root
from unspool.core import files as trained_weights
from unspool.core.errors import MissingDistribution, UnspoolError
from unspool.models.address import heads_of, path
from unspool.models.catalog import CATALOG


def said(*words):
    """What the command raises, or prints."""
    ran = CliRunner().invoke(root, words)
    return ran.output if ran.exception is None else ran.exception


@pytest.fixture
def alone(monkeypatch):
    """As if nothing but unspool were installed."""
    monkeypatch.setattr(plugins, "entry_points", lambda **_: ())
    monkeypatch.setattr(trained_weights, "find_spec", lambda _: None)


@pytest.mark.parametrize("name", plugins.KNOWN)
def test_every_known_command_is_added_by_its_distribution(name):
    (point,) = entry_points(group=plugins.GROUP, name=name)
    assert point.dist.name == plugins.KNOWN[name].distribution
    assert (ROOT / plugins.KNOWN[name].folder / "pyproject.toml").is_file()
    assert "Usage:" in said(name, "--help")


@pytest.mark.parametrize("words", [["bench"], ["bench", "spec", "--quick"], ["auto-tune", "--help"], ["report", "x"]])
def test_a_command_that_is_not_installed_says_what_to_install(alone, words):
    error = said(*words)
    assert isinstance(error, MissingDistribution)
    assert str(error).endswith("run pip install ./bench")
    assert f"`unspool {words[0]}` needs unspool-bench" in str(error)


def test_help_lists_all_commands_without_them(alone):
    told = said("--help")
    assert "train      (not installed: it comes with unspool-train)" in told
    assert "Continue or answer a prompt." in told


def test_a_plugin_that_cannot_be_used_stands_in_nobodys_way(monkeypatch):
    points = (EntryPoint("broken", "no_such_module:x", plugins.GROUP), EntryPoint("odd", "math:pi", plugins.GROUP))
    monkeypatch.setattr(plugins, "entry_points", lambda group, name=None: [p for p in points if name in (None, p.name)])
    assert "(cannot be used)" in said("--help")
    broken, odd = said("broken"), said("odd", "--help")
    assert isinstance(broken, UnspoolError)
    assert "no_such_module:x" in str(broken)
    assert "expected a click.Command, found a float" in str(odd)


def test_a_plugin_adds_a_command_but_replaces_none(monkeypatch):
    hello = click.Command("hello", callback=lambda: click.echo("hello"))
    monkeypatch.setattr(EntryPoint, "load", lambda self: hello)
    points = [EntryPoint(name, "a:b", plugins.GROUP) for name in ("hello", "run", "bench")]
    monkeypatch.setattr(plugins, "entry_points", lambda group, name=None: [p for p in points if name in (None, p.name)])
    assert said("hello") == "hello\n"
    assert "Continue or answer PROMPT" in said("run", "--help")
    assert isinstance(said("bench"), MissingDistribution)


def test_a_plugin_called_as_one_of_ours_does_not_go_first(monkeypatch):
    (own,) = entry_points(group=plugins.GROUP, name="bench")
    points = [EntryPoint("bench", "math:pi", plugins.GROUP), own]
    monkeypatch.setattr(plugins, "entry_points", lambda group, name=None: points)
    assert "Usage:" in said("bench", "--help")


def test_weights_of_the_catalogue_are_there():
    for listing in CATALOG.values():
        for folder, file in ((trained_weights.HEADS, listing.heads), (trained_weights.DELTAS, listing.delta)):
            assert file is None or trained_weights.required(folder, file, "this test").is_file()


def test_without_weights_what_needs_them_says_so(alone):
    assert heads_of("smollm2") is None
    with pytest.raises(MissingDistribution, match=r"the model smollm2-diffusion needs .* \./packages/weights"):
        path("smollm2-diffusion")  # before anything is fetched
    loading = loading_of(model="smollm2")
    loading.check(("plain",))
    with pytest.raises(MissingDistribution, match="the method 'heads' needs unspool-weights"):
        loading.check(("heads",))
    loading_of(model="smollm2", heads="own.safetensors").check(("heads",))


def loading_of(**given):
    defaults = {
        "device": "cpu",
        "dtype": "fp32",
        "quantization": "none",
        "runtime": "auto",
        "ranks": 1,
    }
    fields = (
        dict.fromkeys(("profile", "draft", "small", "heads", "adapter", "kv_cache_tokens"))
        | {"raw": False, "batch_invariant": False}
        | defaults
    )
    return Loading(**fields | given)


def test_all_have_one_version():
    names = ("unspool-bench", "unspool-train", "unspool-weights")
    assert {version(name) for name in names} == {unspool.__version__}


def test_unspool_imports_without_the_others():
    code = "import sys\nfor name in ('bench', 'train', 'weights'): sys.modules[f'unspool_{name}'] = None\n"
    code += "import pkgutil, unspool.apps.cli as c\n"
    code += "for m in pkgutil.iter_modules(c.__path__): __import__(f'unspool.apps.cli.{m.name}')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("name", plugins.KNOWN)
def test_help_of_what_is_added_does_not_import_torch(name):
    code = (
        "import sys\nfrom unspool.apps.cli import main\ntry: main(sys.argv[1:])\nfinally: print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, name, "--help"], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("False\n")

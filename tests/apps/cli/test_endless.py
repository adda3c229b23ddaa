"""Files without an end: whatever names one is read up to a limit and refused in words."""

import os
import re
import threading
from pathlib import Path

import pytest
from repository import ROOT

from unspool import Profile
from unspool.apps.cli import defaults
from unspool.apps.server.clients import clients
from unspool.core import files
from unspool.core.errors import BadModel, BadRequest
from unspool.models.folder import read_json
from unspool.models.json_vocabulary import read_vocabulary
from unspool.recipes.methods import method
from unspool.rules.constrain import Futures, items

ZEROS = "/dev/zero"
OWN = {  # files of the package itself, and plain files whose size was asked
    "runtime/cpu/compiled.py",
    "recipes/method_listing.py",
    "apps/server/window/routes.py",
    "apps/cli/store.py",
}

pytestmark = pytest.mark.skipif(not Path(ZEROS).exists(), reason="there is no device without an end here")


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Less than what the limits are, so that a test reads less; that there are limits is what it is about."""
    for place in ("rules.constrain.static.LARGEST", "rules.constrain.futures.LARGEST", "models.folder.MODEL"):
        monkeypatch.setattr(f"unspool.{place}", 1 << 16)
    monkeypatch.setattr("unspool.models.json_vocabulary.MODEL", 1 << 16)


@pytest.mark.parametrize(
    "options",
    [
        ("run", "x", "--items", ZEROS),
        ("run", "x", "--json-schema", ZEROS),
        ("run", "x", "--grammar", ZEROS),
        ("run", "x", "--cfg", ZEROS),
        ("run", "x", "--method", f"copy:input={ZEROS}"),
        ("run", "--file", ZEROS),
        ("trace", "--file", ZEROS),
        ("run", "x", "--profile", ZEROS),
        ("compare", "plain", "--prompts", ZEROS),
        ("serve", "--keys", ZEROS),
        ("serve", "--items", f"towns={ZEROS}"),
        ("prove", "chain", "--replay", ZEROS),
    ],
    ids=lambda options: " ".join(options),
)
def test_every_option_that_names_a_file_reads_it_up_to_a_limit(options, loaded):
    status, out, err = loaded(*options)
    assert (status, out) == (2, "")
    assert "too long; expected at most" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "options", [("run",), ("run", "x", "--grammar", "-"), ("chat",)], ids=["prompt", "grammar", "chat"]
)
def test_what_comes_in_without_an_end_is_read_up_to_a_limit(options, loaded, monkeypatch):
    with open(ZEROS, encoding="utf-8") as zeros:
        monkeypatch.setattr("sys.stdin", zeros)
        status, _, err = loaded(*options)
    assert status == 2
    assert "too long; expected at most" in err


def test_other_files_of_requests_and_models_have_limits_too(tmp_path, monkeypatch):
    with pytest.raises(BadRequest, match="too long"):
        defaults.read(Path(ZEROS))
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).symlink_to(ZEROS)
    with pytest.raises(BadModel, match="too long"):
        read_json(tmp_path / "config.json")
    with pytest.raises(BadModel, match="too long"):
        read_vocabulary(tmp_path, 10)
    for read in (Futures.load, Profile.read, clients, items):
        with pytest.raises(BadRequest, match="too long"):
            read(Path(ZEROS))
    for spec in ("retrieve:store", "suffix:corpus", "filtered:file", "specdecpp:head"):
        with pytest.raises(BadRequest, match=ZEROS):
            method(f"{spec}={ZEROS}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_read_to_its_end_or_to_the_limit(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def fill(data):
        with pipe.open("wb", buffering=0) as file:
            try:
                while data:
                    data = data[file.write(data) :]
            except BrokenPipeError:
                pass

    for size, fits in ((9, True), (files.TEXT, False)):
        writer = threading.Thread(target=fill, args=(b"a" * size,))
        writer.start()
        if fits:
            assert items(pipe).texts == ("a" * 9,)
        else:
            with pytest.raises(BadRequest, match="too long"):
                items(pipe)
        writer.join()


def test_nothing_reads_a_whole_file_without_a_limit():
    package = ROOT / "src" / "unspool"
    calls = re.compile(r"\.read_(text|bytes)\(")
    found = {file for file in package.rglob("*.py") if calls.search(file.read_text(encoding="utf-8"))}
    assert {file.relative_to(package).as_posix() for file in found} == OWN

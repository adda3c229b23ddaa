"""Files without an end, and pipes without a writer: whatever names one is read up to a limit and refused in words."""

import os
import re
import threading
import time
from pathlib import Path

import pytest
import torch
from repository import ROOT

from unspool import Profile
from unspool.apps.cli import defaults
from unspool.apps.server.clients import clients
from unspool.core import files
from unspool.core.errors import BadModel, BadRequest
from unspool.models.delta import base_of
from unspool.models.folder import read_json
from unspool.models.gguf import GGUF
from unspool.models.json_vocabulary import read_vocabulary
from unspool.recipes.methods import method
from unspool.rules.constrain import Futures, grammar, items, regex
from unspool.rules.constrain.itemset import ItemSet
from unspool.rules.draft.retrieve import Store
from unspool.rules.draft.specdecpp import AcceptanceHead
from unspool.rules.unmask.filtered import Filter
from unspool.runtime.network.lookahead_heads import heads_bytes

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


NAMING = [  # every option that names a file to be read as text; FILE stands for its name
    ("run", "x", "--items", "FILE"),
    ("run", "x", "--json-schema", "FILE"),
    ("run", "x", "--grammar", "FILE"),
    ("run", "x", "--cfg", "FILE"),
    ("run", "x", "--method", "copy:input=FILE"),
    ("run", "--file", "FILE"),
    ("trace", "--file", "FILE"),
    ("run", "x", "--profile", "FILE"),
    ("compare", "plain", "--prompts", "FILE"),
    ("serve", "--keys", "FILE"),
    ("serve", "--items", "towns=FILE"),
    ("prove", "chain", "--replay", "FILE"),
]
OTHERS = [  # and those that name a file which is no text
    ("run", "x", "--method", "retrieve:store=FILE"),
    ("run", "x", "--method", "suffix:corpus=FILE"),
    ("run", "x", "--method", "specdecpp:head=FILE"),
    ("run", "x", "--method", "recycle:memory=FILE"),
    ("batch", "FILE", "answers"),
]


def naming(options, file):
    return [option.replace("FILE", str(file)) for option in options]


@pytest.mark.parametrize("options", NAMING, ids=" ".join)
def test_every_option_that_names_a_file_reads_it_up_to_a_limit(options, loaded):
    status, out, err = loaded(*naming(options, ZEROS))
    assert (status, out) == (2, "")
    assert "too long; expected at most" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", NAMING + OTHERS, ids=" ".join)
def test_a_pipe_that_nobody_writes_to_is_refused(options, loaded, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "WRITER", 0.05)
    monkeypatch.chdir(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    status, out, err = loaded(*naming(options, tmp_path / "pipe"))
    assert (status, out) == (2, "")
    assert "nobody writes to this pipe" in err or "no plain file" in err
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


DEEP = {  # TOML that takes for ever to read, or a stack that nobody has
    "lists": "a = " + "[" * 3000 + "]" * 3000,
    "tables": "a = " + "{a = " * 1300 + "1" + "}" * 1300,
    "parts": "[" + ".".join(["a"] * 100_000) + "]",
    "lines": "\n".join("[" + ".".join(["a"] * 4000) + f".b{n}]" for n in range(400)),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_settings_that_are_nested_without_end_are_refused(text, tmp_path):
    (tmp_path / "file.toml").write_text(text)
    for read in (Profile.read, clients, defaults.read):
        with pytest.raises(BadRequest) as refused:
            read(tmp_path / "file.toml")
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize("form", [regex, grammar])
def test_what_is_said_about_a_form_does_not_repeat_all_of_it(form, smollm2):
    source = "(" * 5000 + "a" + ")" * 5000
    with pytest.raises(BadRequest) as refused:
        form(source if form is regex else f"start: {source}").fit(smollm2.vocabulary)
    assert len(str(refused.value)) < 2000


def test_nothing_reads_a_whole_file_without_a_limit():
    package = ROOT / "src" / "unspool"
    calls = re.compile(r"\.read_(text|bytes)\(")
    found = {file for file in package.rglob("*.py") if calls.search(file.read_text(encoding="utf-8"))}
    assert {file.relative_to(package).as_posix() for file in found} == OWN


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
@pytest.mark.timeout(60)
def test_files_of_models_that_are_pipes_are_refused(tmp_path):
    pipe = tmp_path / "pipe.safetensors"
    os.mkfifo(pipe)
    for read in (Filter.load, ItemSet.load, AcceptanceHead.load, Store.load):
        with pytest.raises(BadRequest, match="no plain file"):
            read(pipe)
    for read in (base_of, lambda file: heads_bytes(file, torch.float32), GGUF):
        with pytest.raises(BadModel, match="no plain file"):
            read(pipe)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_writer_of_a_pipe_may_come_late_and_take_its_time(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write(wait_before, wait_after):
        time.sleep(wait_before)
        with pipe.open("wb", buffering=0) as file:
            time.sleep(wait_after)
            for _ in range(3):
                file.write(b"abc")

    for before, after in ((0.1, 0), (0, 0.2)):
        writer = threading.Thread(target=write, args=(before, after))
        writer.start()
        assert files.read_bytes(pipe, 9) == b"abc" * 3
        writer.join()

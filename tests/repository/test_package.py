"""The package: built, installed elsewhere and run, with all that it needs in it and nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

import click
import pytest
from repository import ROOT

import unspool
from unspool.apps.cli.root import root

TOP = {".ci", "src", "packages", "tests", "bench", "docs", "examples", "deploy", "scripts", "mkdocs.yml"}
TOP |= {"constraints.txt", "CHANGELOG.md", "CONTRIBUTING.md"}
ALWAYS = {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}  # whatever it is told


def given(words):
    """The options of `unspool serve` as it would read them; an unknown one is an error."""
    command = root.get_command(click.Context(root), "serve")
    assert words[0].endswith("unspool")
    assert words[1] == "serve"
    return command.make_context("serve", list(words[2:]), resilient_parsing=False).params


def unit():
    read = ConfigParser(strict=False, interpolation=None)
    read.optionxform = str
    read.read(ROOT / "deploy" / "unspool.service")
    return read["Service"]


def test_the_unit_starts_a_server_and_lets_it_finish():
    service = unit()
    options = given(shlex.split(service["ExecStart"]))
    assert options["host"] == "127.0.0.1"
    assert not options["keys"]  # on a command line everybody sees them
    assert float(service["TimeoutStopSec"]) > options["grace"]
    assert int(service["LimitNOFILE"]) > options["connections"]


def test_the_unit_is_one_that_systemd_reads(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("without systemd")
    text = (ROOT / "deploy" / "unspool.service").read_text()
    (tmp_path / "unspool.service").write_text(text.replace("/usr/local/bin/unspool", "/bin/true"))
    ran = subprocess.run(["systemd-analyze", "verify", tmp_path / "unspool.service"], capture_output=True, text=True)
    assert "unspool.service" not in ran.stderr  # of other units there may be something to say


def test_the_container_starts_a_server_as_nobody_with_nothing_secret():
    lines = (ROOT / "deploy" / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    said = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    (start,) = [json.loads(rest) for word, rest in said if word == "ENTRYPOINT"]
    options = given([*start, "--method", "auto"])
    assert (options["host"], options["port"]) == ("0.0.0.0", 8000)
    users = [rest for word, rest in said if word == "USER"]
    assert users
    assert not users[-1].startswith(("0", "root"))
    for word, rest in said:
        if word == "COPY":
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
        if word in ("ENV", "ARG"):
            assert not re.search("key|token|password", rest, re.IGNORECASE)


def test_the_wheel_is_small_and_holds_unspool_alone(tmp_path):
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"unspool-{unspool.__version__}-")
    assert wheel.stat().st_size < 2_000_000
    held = {Path(name) for name in zipfile.ZipFile(wheel).namelist()}
    source = {p for p in (ROOT / "src").rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {p for p in held if p.parts[0] == "unspool"} == {p.relative_to(ROOT / "src") for p in source}
    assert {p.parts[0].split("-")[0] for p in held} == {"unspool"}  # nothing of bench/ and packages/
    assert not [p for p in held if p.suffix == ".safetensors"]


def test_the_source_is_said_to_hold_what_it_is_checked_for():
    told = re.search(r"^only-include = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {*json.loads(told[1])} == TOP


@pytest.mark.slow
def test_what_is_built_runs_elsewhere_and_holds_what_it_should(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    environment = {**os.environ, "PYTHON": sys.executable, "OUT": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    command = [str(ROOT / "scripts" / "package"), "--quick"]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"unspool {unspool.__version__}" in ran.stdout

    assert len([*tmp_path.glob("unspool_*.whl")]) == 3  # bench, train, weights
    (wheel,) = tmp_path.glob("unspool-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    tracked = {p for p in source.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert {str(p.relative_to(source)) for p in tracked} == {name for name in held if name.startswith("unspool/")}
    assert "unspool/py.typed" in held
    assert any(name.endswith("licenses/LICENSE") for name in held)
    assert all(name.split("/")[0].split("-")[0] == "unspool" for name in held)

    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = [m for m in archive.getmembers() if m.isfile()]
    assert {m.name.split("/")[1] for m in members} <= TOP | ALWAYS
    large = {m.name.partition("/")[2]: m.size for m in members if m.size > 1 << 20}
    trained = "packages/weights/src/unspool_weights"
    files = ("deltas/smollm2-diffusion.safetensors", "drafters/smollm2-eagle3/model.safetensors")
    assert sorted(large) == [f"{trained}/{file}" for file in (*files, "heads/smollm2.safetensors")]

"""A bare installation: what `pip install .` and its extra for grammars do not bring is not needed for what they do."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from littlemodel import little_model
from repository import ROOT

ABSENT = ("numpy", "triton", "transformers", "fastapi", "playwright", "cairosvg", "xgrammar")
ALONE = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT}))\n"


def run(code: str) -> str:
    ran = subprocess.run([sys.executable, "-W", "error", "-c", ALONE + code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_rule_can_be_imported():
    run(
        "import importlib, pkgutil, unspool.rules, unspool.recipes, unspool.proof\n"
        "for package in (unspool.rules, unspool.recipes, unspool.proof):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('.xgrammar'):\n"
        "            importlib.import_module(found.name)\n"
    )


def test_a_model_drafts_for_itself(tmp_path):
    folder = little_model(tmp_path / "little")
    out = run(
        "import unspool\n"
        f"lm = unspool.load({str(folder)!r}, draft='layers:1')\n"
        "print(lm.generate('x', max_tokens=4, method='chain', raw=True).trace.forwards['draft'] > 0)\n"
    )
    assert out == "True\n"


def test_texts_are_written_and_keep_to_their_forms(tmp_path):
    pytest.importorskip("llguidance")
    folder = little_model(tmp_path / "little")
    out = run(
        "import unspool\n"
        f"lm = unspool.load({str(folder)!r})\n"
        "for form in (unspool.regex('[ab]{3}'), unspool.json_schema({'enum': ['aba']}), unspool.choices('aba')):\n"
        "    print(lm.generate('x', max_tokens=9, constraint=form, method='forced', raw=True).text)\n"
    )
    first, second, third = out.split()
    assert len(first) == 3
    assert (second, third) == ('"aba"', "aba")


def test_extras_are_spelt_as_every_pip_knows_them():
    told = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\[", told, re.DOTALL)[1]
    names = re.findall(r"^([A-Za-z0-9_.-]+) =", extras, re.MULTILINE)
    assert "grammar" in names
    assert [name for name in names if name != re.sub(r"[-_.]+", "-", name).lower()] == []
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    said = {extra for page in pages for found in re.findall(r"(?:unspool|'\.)\[([a-z_,-]+)\]", page.read_text("utf-8"))
            for extra in found.split(",")}  # fmt: skip
    assert said <= set(names)

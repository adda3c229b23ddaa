"""The examples run, and the notebooks hold what came when they were run."""

import json
import runpy

import pytest
from repository import ROOT

import unspool

EXAMPLES = ROOT / "examples"
QUICK = ("ask", "structured")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(file.stem, marks=() if file.stem in QUICK else pytest.mark.slow)
        for file in sorted(EXAMPLES.glob("*.py"))
    ],
)
def test_the_scripts_run(name, smollm2, monkeypatch, capsys, one_thread):
    if name == "structured":
        pytest.importorskip("llguidance")
    monkeypatch.setattr(unspool, "load", lambda name: smollm2)
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda file: file.stem)
def test_the_notebooks_were_run_and_name_nothing_of_a_machine(file):
    text = file.read_text("utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    assert any(cell["outputs"] for cell in cells)
    assert not any(place in text for place in ("/home/", "/work/", "/tmp/", "/Users/"))
    for cell in cells:
        compile("".join(cell["source"]), file.name, "exec")


def test_every_example_is_listed():
    page = (EXAMPLES / "README.md").read_text("utf-8")
    files = [file for file in EXAMPLES.iterdir() if file.suffix in (".py", ".ipynb")]
    assert len(files) == 8
    assert all(f"`{file.name}`" in page for file in files)

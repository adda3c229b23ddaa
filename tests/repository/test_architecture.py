"""How many modules one request touches: only ever fewer, and the picture of the way it takes is still true."""

import json
import subprocess
import sys

import pytest
from repository import ROOT

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

MOST = {"cpu": 30, "server": 45, "gpu": 36}  # modules; lower them with what the code allows


@pytest.fixture(scope="module")
def ran():
    told = subprocess.run([sys.executable, ROOT / "scripts/architecture", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(told.stdout)


def test_a_request_touches_no_more_modules_than_it_did(ran):
    assert {way: found["count"] for way, found in ran.items() if found["count"] > MOST[way]} == {}


def test_the_request_went_where_the_page_says(ran):
    assert "rules/draft/lookup" in ran["cpu"]["modules"]
    assert "apps/server/worker" in ran["server"]["modules"]
    assert "runtime/cuda/graph_bucket" in ran["gpu"]["modules"]
    assert not any(module.startswith(("runtime/cuda/", "kernels/")) for module in ran["cpu"]["modules"])


def test_the_page_tells_the_counts_that_the_picture_shows():
    page, picture = ((ROOT / "docs" / name).read_text() for name in ("architecture.md", "architecture.svg"))
    for told in ("on the CPU", "through the server", "on a GPU"):
        (count,) = {line.split(told)[0].split()[-1] for line in picture.splitlines() if told in line and ":" in line}
        assert f"| {told} | {count} |" in page

"""Kernels compile for a GPU that is not here: the interpreter takes code that Triton's compiler refuses."""

import os
import subprocess
import sys

import pytest
from repository import ROOT

pytest.importorskip("triton")


def test_the_kernels_of_warps_compile():
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, ROOT / "tests/support/compiled.py"], env=clean, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert set(ran.stdout.split()) == {"_truncate", "_weigh", "_pick", "_edit", "_report", "_follow", "_advance"}

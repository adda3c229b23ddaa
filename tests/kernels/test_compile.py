"""Kernels compile for a GPU that is not here: the interpreter takes code that Triton's compiler refuses."""

import os
import subprocess
import sys

import pytest
from repository import ROOT

pytest.importorskip("triton")


def test_the_kernels_of_warps_drafters_and_families_compile():
    clean = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, ROOT / "tests/support/compiled.py"], env=clean, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    drafting = {"_look_back", "_pair", "_lay", "_expand", "_blend", "_grow", "_select", "_merge"}
    warps = {"_truncate", "_weigh", "_pick", "_edit", "_report", "_follow", "_advance", "_rank", "_amend"}
    families = {"_attend", "_join", "_join_in_order", "_rope"}
    experts = {"_score", "_choose", "_arrange", "_grouped", "_combine", "_answer"}
    recurrent = {"_convolve", "_delta", "_mamba", "_gated_norm"}
    products = {"_product", "one_token", "_few", "_few_tokens", "_chunked", "_many_tokens"}
    prompts = {"_survey", "_gather", "_prompt", "_prefix", "_rest"}
    assert set(ran.stdout.split()) == drafting | warps | families | experts | recurrent | products | prompts

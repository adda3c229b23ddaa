"""Ctrl-C: a search gives the best that it has found, says so, and leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys

import pytest
from patience import PATIENCE, until
from processes import started
from toy import Toy

from unspool.api.settings import Settings
from unspool.api.writer import Interrupted, Writer
from unspool.core.chance import Philox
from unspool.core.claim import overheard
from unspool.core.stop import Stop
from unspool.core.warp import Same
from unspool.models.vocabulary import TextStream
from unspool.recipes.methods import method as named
from unspool.rules.search import Beam
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.engine.engine import Engine

SLOW = """
import sys, time
from pathlib import Path
from unspool.apps.cli import main
from unspool.rules.search.beam_cache import BeamCache

score, sign, calls = BeamCache.score, Path(sys.argv[1]), []

def counted(self, *arguments):
    calls.append(1)
    if len(calls) == 12:
        sign.touch()
        time.sleep(200)  # somebody interrupts meanwhile
    return score(self, *arguments)

BeamCache.score = counted
main(sys.argv[2:])
"""


def interrupted(command, sign):
    """Stdout and stderr of a command that is interrupted as soon as it gives a sign."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "UNSPOOL_DEBUG": ""}
    with started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as ran:
        until(lambda: sign.exists() or ran.poll() is not None)
        ran.send_signal(signal.SIGINT)
        out, err = ran.communicate(timeout=PATIENCE)
    assert b"Traceback" not in err
    assert ran.returncode == 130, err
    return out.decode(), err.decode()


OPTIONS = ["--max-tokens", "200", "--ignore-eos", "--dtype", "fp32"]


@pytest.mark.parametrize(
    "method",
    [
        "beam:width=2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("diverse:groups=2", "several:count=2", "smc")),
    ],
)
def test_a_search_that_is_interrupted_prints_the_best_so_far(smollm2_path, tmp_path, method):
    sign, script = tmp_path / "sign", tmp_path / "slow.py"
    script.write_text(SLOW)
    asked = ["run", "Count from 1 to 20.", "--model", str(smollm2_path), "--method", method, *OPTIONS]
    asked += ["--temperature", "0.5"]
    out, err = interrupted([sys.executable, str(script), str(sign), *asked], sign)
    assert len(out.split()) >= 3
    line = next(line for line in err.splitlines() if "interrupted" in line)
    rows = int(line.split("after ")[1].split()[0])
    assert line == f"unspool: interrupted after {rows} model rows; what there is by then is above"
    assert 11 < rows < 200  # the prompt's and some for each token


@pytest.mark.slow
def test_planning_that_is_interrupted_prints_the_best_finished_text(smollm2, smollm2_path, tmp_path):
    sign, grade = tmp_path / "sign", tmp_path / "grade.py"
    grade.write_text(
        "import time\nfrom pathlib import Path\nseen = []\n\ndef graded(text):\n    seen.append(text)\n"
        f"    if len(seen) == 2:\n        Path({str(sign)!r}).touch()\n        time.sleep(200)\n"
        "    return 1.0 - 0.1 * len(seen)\n"
    )
    asked = [
        "run",
        "Tell me a story. Once",
        "--raw",
        "--model",
        str(smollm2_path),
        "--dtype",
        "fp32",
        "--max-tokens",
        "8",
    ]
    command = [sys.executable, "-m", "unspool", *asked, "--method", f"mcts:reward={grade}:graded", "--json"]
    out, err = interrupted(command, sign)
    record = json.loads(out)
    assert record["reason"] == "interrupted"
    plain = smollm2.generate("Tell me a story. Once", Settings(max_tokens=8), raw=True)
    assert record["text"] == plain.text  # the first was the best, and the first is greedy decoding's
    assert "interrupted after" in err


class Struck(Toy):
    """A network during whose n-th forward Ctrl-C is pressed."""

    strike = 6

    def forward(self, batch):
        if self.forwards == self.strike:
            raise KeyboardInterrupt
        return super().forward(batch)


@pytest.mark.parametrize(
    "spec",
    ["plain", "beam", "diverse", "stochastic", "several", "foresight", "astar", "mcts", "smc", "rewarded"],
)
def test_nothing_leaks_and_something_is_told_wherever_it_strikes(spec):
    for strike in range(1, 12):
        toy = Struck(vocab=5, room=4000)
        toy.strike = strike
        model, found = CachedModel(toy), []
        engine = Engine({"target": model})
        stop = Stop(most=40, piece=lambda token: bytes([97 + token]))
        heard = overheard(named(spec), found.extend)
        job = engine.submit(heard, (0, 1, 2), Philox(strike), Same(), stop)
        writer = Writer(job, TextStream(stop.piece), None)
        with pytest.raises(KeyboardInterrupt):
            engine.run()
        told = writer.broken_off(engine)
        assert toy.slots.in_use == 0
        assert told.reason == "interrupted"
        assert told.tokens or any(text.tokens for text in found)
        assert told.trace.rows["target"] == toy.computed


def test_the_api_hands_over_what_there_is(monkeypatch, smollm2):
    forward, calls = type(smollm2.model.network).forward, []

    def struck(self, *arguments, **more):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return forward(self, *arguments, **more)

    monkeypatch.setattr(type(smollm2.model.network), "forward", struck)
    before = smollm2.model.network.slots.in_use
    with pytest.raises(Interrupted) as stopped:
        smollm2.generate("Count: 1, 2, 3,", method=Beam(2), raw=True)
    (output,) = stopped.value.outputs
    assert output.reason == "interrupted"
    assert len(output.tokens) in (5, 6)  # whether that forward reads the prompt too
    assert output.text
    assert smollm2.model.network.slots.in_use <= before + 16
    assert isinstance(stopped.value, KeyboardInterrupt)

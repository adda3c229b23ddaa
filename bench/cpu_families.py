"""What drafts bring on a CPU, family by family of Spec-Bench, beside llama.cpp and its prompt lookup; and start-up.

`bench/cpu.py` runs all of this with the rest.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from llamacpp import BARE, Bare, gain, timed

from unspool.api.lm import LM

METHODS = ("plain", "auto", "lookup", "suffix", "bigram_recycling")
THEIRS = "llama.cpp's runtime"
STARTED = (
    "import time, sys\n"
    "start = time.perf_counter(), time.process_time()\n"
    "import torch\n"
    "middle = time.perf_counter(), time.process_time()\n"
    "import unspool\n"
    "lm = unspool.load(sys.argv[1])\n"
    "next(iter(lm.stream('Hello', unspool.Settings(max_tokens=4, temperature=0.0))))\n"
    "end = time.perf_counter(), time.process_time()\n"
    "print(*(b - a for a, b in zip(start, middle)), *(b - a for a, b in zip(middle, end)))\n"
)


def families(
    native: LM, theirs: LM | None, bare: Bare | None, prompts: Mapping[str, tuple[int, ...]], count: int, repeats: int
) -> dict[str, Any]:
    """Milliseconds a token of every contender on every family, the median of turns that all take one after the other.

    Every method must write what plain decoding writes, to the last token; one that does not is an error.
    """
    sides: dict[str, Callable[[tuple[int, ...]], tuple[tuple[int, ...], float]]] = {
        name: (lambda prompt, name=name: timed(native, prompt, count, name))  # type: ignore[misc]
        for name in METHODS
    }
    if theirs is not None:
        sides[THEIRS] = lambda prompt: timed(theirs, prompt, count, "plain")
    if bare is not None:
        for name in BARE:
            sides[name] = lambda prompt, name=name: written(bare, prompt, count, native, name)  # type: ignore[misc]
    times: dict[str, dict[str, list[float]]] = {family: {name: [] for name in sides} for family in prompts}
    for family, prompt in prompts.items():
        texts: dict[str, tuple[int, ...]] = {}
        for turn in range(repeats + 1):  # the first reads the prompt
            for name, write in sides.items():
                texts[name], seconds = write(prompt)
                if turn:
                    times[family][name].append(1e3 * seconds)
        other = [name for name in METHODS if texts[name] != texts["plain"]]
        if other:
            raise AssertionError(f"{', '.join(other)} did not write what plain decoding writes ({family})")
    found = {family: {name: round(median(all_), 3) for name, all_ in row.items()} for family, row in times.items()}
    gains = {name: gain(found, "plain", name) for name in METHODS if name != "plain"}
    result: dict[str, Any] = {"ms_a_token": found, "over_plain": gains}
    if bare is not None:
        result["over_llama_cpp_ngram"] = {name: gain(found, "ngram", name) for name in METHODS}
        result["ngram_over_bare"] = gain(found, "bare", "ngram")
    if bare is not None and theirs is not None:
        result["llama_cpp_runtime_over_bare"] = gain(found, "bare", THEIRS)
    return result


def written(bare: Bare, prompt: Sequence[int], count: int, lm: LM, name: str) -> tuple[tuple[int, ...], float]:
    """A text of llama.cpp's bare loop, and the seconds of a token."""
    text, seconds = bare.write(prompt, count, lm.vocabulary.eos, name == "ngram")
    return tuple(text), seconds


def started(model: str, repeats: int = 3) -> dict[str, float]:
    """Seconds of a fresh process from importing torch to the first token, with a warm cache: the least of some."""
    names = ("import_torch_s", "import_torch_cpu_s", "to_first_token_s", "to_first_token_cpu_s")
    runs = []
    for _ in range(repeats):
        done = subprocess.run([sys.executable, "-c", STARTED, model], capture_output=True, text=True, check=True)
        runs.append([float(part) for part in done.stdout.split()])
    return {name: round(min(run[i] for run in runs), 2) for i, name in enumerate(names)}

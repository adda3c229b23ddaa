"""What drafts bring on a CPU, family by family of Spec-Bench, beside llama.cpp and its prompt lookup; and start-up.

`bench/cpu.py` runs all of this with the rest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

from llamacpp import BARE, Bare, family_of, gain, timed, together

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.runtime.engine.price import measure

METHODS = ("plain", "auto", "merge:nodes=3", "lookup:depth=3", "lookup:depth=7", "suffix:depth=3")
THEIRS = "llama.cpp's runtime"
TORCH = ("-c", "import torch; print(torch.__version__)")
FREE = ("priced", "free")
RUN = ("-m", "unspool", "run", "Why is the sky blue?", "--max-tokens", "4", "--model")


def families(
    native: LM,
    theirs: LM | None,
    bare: Bare | None,
    prompts: Mapping[str, tuple[int, ...]],
    count: int,
    repeats: int,
    methods: Sequence[str] = METHODS,
) -> dict[str, Any]:
    """Milliseconds a token of every contender on every text, the median of turns that all take one after the other.

    Gains are those of families, all texts of one together, as the tokens of a text count in the time that it takes.
    Every method must write what plain decoding writes, to the last token; those that do not are told as `differs`.
    """
    sides: dict[str, Callable[[tuple[int, ...]], tuple[tuple[int, ...], float]]] = {
        name: (lambda prompt, name=name: timed(native, prompt, count, name))  # type: ignore[misc]
        for name in methods
    }
    if theirs is not None:
        sides[THEIRS] = lambda prompt: timed(theirs, prompt, count, "plain")
    if bare is not None:
        for name in BARE:
            sides[name] = lambda prompt, name=name: written(bare, prompt, count, native, name)  # type: ignore[misc]
    differs, tokens = list[str](), dict[str, int]()
    times: dict[str, dict[str, list[float]]] = {text: {name: [] for name in sides} for text in prompts}
    for text, prompt in prompts.items():
        wrote: dict[str, tuple[int, ...]] = {}
        for turn in range(repeats + 1):  # the first reads the prompt
            for name, write in sides.items():
                wrote[name], seconds = write(prompt)
                if turn:
                    times[text][name].append(1e3 * seconds)
        tokens[text] = len(wrote["plain"])
        differs += [f"{name} ({text})" for name in methods if wrote[name] != wrote["plain"]]
    each = {text: {name: round(median(all_), 3) for name, all_ in row.items()} for text, row in times.items()}
    found = together(each, tokens)
    gains = {name: gain(found, "plain", name) for name in methods if name != "plain"}
    best = max(gains, key=lambda name: gains[name]["mean"], default=None)
    by_family = {name: {family: round(row["plain"] / row[name], 3) for family, row in found.items()} for name in gains}
    result: dict[str, Any] = {"ms_a_token": each, "tokens": tokens, "gains": by_family, "over_plain": gains}
    result |= {"best": best, "differs": differs}
    if bare is not None:
        result["over_llama_cpp_ngram"] = {name: gain(found, "ngram", name) for name in methods}
        result["ngram_over_bare"] = gain(found, "bare", "ngram")
    if bare is not None and theirs is not None:
        result["llama_cpp_runtime_over_bare"] = gain(found, "bare", THEIRS)
    return result


def rounds(lm: LM, prompts: Mapping[str, tuple[int, ...]], count: int, methods: Sequence[str]) -> dict[str, Any]:
    """The forwards of every method on every family by their rows, and their price over plain decoding's.

    The price of a forward is that of so many rows in this run, so the clock is read for no text: where a method asks
    for the same rows as plain decoding its gain is 1, whatever else the machine does. `free` is the gain if rows cost
    nothing: tokens per forward.
    """
    cost, executor = measure(lm.model), lm.model.executor
    settings = Settings(max_tokens=count, temperature=0.0)
    forward, rows = executor.forward, Counter[int]()

    def counting(requests: Any, wants: Any) -> None:
        rows[sum(map(len, requests))] += 1
        forward(requests, wants)

    found: dict[str, dict[str, Any]] = {family_of(text): {} for text in prompts}
    for name in methods:  # what a method asks for once in its life, as the prices of rows, is no part of a text
        timed(lm, next(iter(prompts.values())), count, name)
    executor.forward = counting
    try:
        for family, of in found.items():
            texts = [prompt for text, prompt in prompts.items() if family_of(text) == family]
            asked, tokens = {name: Counter[int]() for name in methods}, Counter[str]()
            for prompt in texts:
                timed(lm, prompt, 1, "plain")  # reads the prompt, which stays in the cache until the next
                for name in methods:
                    rows.clear()
                    tokens[name] += len(lm.generate(list(prompt), settings, method=name).tokens)
                    asked[name] += rows
            for name, all_ in asked.items():
                price = sum(cost(n) * times for n, times in all_.items())
                gains = {"priced": tokens[name] * cost(1) / price, "free": tokens[name] / all_.total()}
                of[name] = {"tokens": tokens[name], "rows": dict(sorted(all_.items()))}
                of[name] |= {kind: round(gain, 3) for kind, gain in gains.items()}
    finally:
        executor.forward = forward
    gains = {name: [row[name] for row in found.values()] for name in methods}
    over = {
        name: {
            kind: {"mean": round(mean(x[kind] for x in all_), 3), "least": min(x[kind] for x in all_)} for kind in FREE
        }
        for name, all_ in gains.items()
    }
    prices = {str(n): round(1e3 * t, 2) for n, t in zip(cost.rows, cost.times, strict=True)}
    return {"price_ms": prices, "by_family": found, "over_plain": over}


def written(bare: Bare, prompt: Sequence[int], count: int, lm: LM, name: str) -> tuple[tuple[int, ...], float]:
    """A text of llama.cpp's bare loop, and the seconds of a token."""
    text, seconds = bare.write(prompt, count, lm.vocabulary.eos, name == "ngram")
    return tuple(text), seconds


def started(model: str, repeats: int = 5) -> dict[str, float]:
    """Seconds from the shell to the first character of a text, with a warm cache, and of importing torch: the least.

    The two take turns. Processor time is that of all threads.
    """
    sides = {"import_torch": TORCH, "first_token": (*RUN, model)}
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(repeats + 1):
        for name, command in sides.items():
            found = _until_first(command)
            if turn:  # the first fills the cache of files
                runs[name].append(found)
    least = {name: [min(run[i] for run in all_) for i in (0, 1)] for name, all_ in runs.items()}
    beyond = [a - b for a, b in zip(least["first_token"], least["import_torch"], strict=True)]
    named = {**least, "beyond_torch": beyond}
    return {
        f"{name}_{kind}": round(pair[i], 2) for name, pair in named.items() for i, kind in enumerate(("s", "cpu_s"))
    }


def _until_first(arguments: Sequence[str]) -> tuple[float, float]:
    """Seconds of the clock and of the processor until a Python process writes its first character.

    Modules may be kept compiled, as pip leaves them where it installs a package.
    """
    silent = dict.fromkeys(("stdin", "stderr"), subprocess.DEVNULL)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, env=kept, **silent)
    try:
        assert process.stdout is not None
        if not process.stdout.read(1):
            raise RuntimeError(f"{' '.join(arguments)} wrote nothing")
        wall = perf_counter() - began
        used = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]  # utime and stime
        return wall, sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    finally:
        process.kill()
        process.communicate()

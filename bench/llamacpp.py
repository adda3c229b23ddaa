"""llama.cpp as a runtime: what our loop costs over its own, what rows cost, what drafts bring, where texts part.

    python bench/llamacpp.py [--model smollm2] [--data FOLDER] [--tokens 64] [--threads N] [--json FILE]
    python bench/llamacpp.py --runtime native --methods plain lookup suffix:depth=3 auto [--json FILE]
    python bench/llamacpp.py --diverge 24 [--json FILE]

The bare loop is ctypes alone: one sequence, llama.cpp's own settings, the largest logit, nothing else. `ngram` is that
with prompt lookup: what followed the last 3 or 2 tokens before is drafted, up to 7 tokens, and verified in one call of
`llama_decode` (the wheel exports llama.cpp's own n-gram drafters as C++ alone). All contenders take turns on each
prompt (the first of every family of Spec-Bench); what counts is the time after the first token, that of the processor
with one thread, of the wall with more.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch
from record import save
from spec import DATA, questions

from unspool.api.diverge import divergence, passes_of
from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.models.address import path
from unspool.runtime.engine.price import measure
from unspool.runtime.llamacpp.library import BatchStruct, library

METHODS = ("plain", "lookup", "suffix", "suffix:depth=3")
NGRAMS, DRAFTED = (3, 2), 7
ROWS = (1, 2, 4, 8)
ROOM, LONGEST = 4096, 300
BARE = ("bare", "ngram")


class Bare:
    """llama.cpp by its C functions: a model, a context with its usual settings, a batch."""

    def __init__(self, file: str, threads: int) -> None:
        self.lib = lib = library()
        self.model = lib.llama_model_load_from_file(file.encode(), lib.llama_model_default_params())
        settings = lib.llama_context_default_params()
        settings.n_ctx, settings.n_batch, settings.n_threads, settings.n_threads_batch = ROOM, 512, threads, threads
        self.context = lib.llama_init_from_model(self.model, settings)
        self.memory = lib.llama_get_memory(self.context)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.arrays = [(kind * 512)() for kind in (ctypes.c_int32,) * 3 + (ctypes.c_void_p, ctypes.c_int8)]
        self.zero, self.read = ctypes.c_int32(0), ()
        tokens, places, counts, sets, wanted = map(ctypes.addressof, self.arrays)
        self.batch = BatchStruct(0, tokens, None, places, counts, sets, wanted)
        self.arrays[2][:] = [1] * 512
        self.arrays[3][:] = [ctypes.addressof(self.zero)] * 512

    def decode(self, tokens: Sequence[int], start: int, wanted: int) -> list[int]:
        """Compute these tokens, the last `wanted` with logits; the likeliest token after each of those."""
        count = len(tokens)
        self.arrays[0][:count] = list(tokens)
        self.arrays[1][:count] = list(range(start, start + count))
        self.arrays[4][:count] = [i >= count - wanted for i in range(count)]
        self.batch.n_tokens = count
        assert self.lib.llama_decode(self.context, self.batch) == 0
        rows = (self.lib.llama_get_logits_ith(self.context, row) for row in range(count - wanted, count))
        laws = ((ctypes.c_float * self.vocab).from_address(row) for row in rows)
        return [int(torch.frombuffer(law, dtype=torch.float32).argmax()) for law in laws]

    def write(
        self, prompt: Sequence[int], count: int, ends: frozenset[int], drafts: bool = False
    ) -> tuple[list[int], float]:
        """A greedy text, and the seconds that a token after the first took."""
        known = len(prompt) - 1 if self.read == tuple(prompt) else 0  # as the other has its prefix cache
        self.lib.llama_memory_seq_rm(self.memory, 0, known, -1)
        self.read = tuple(prompt)
        for start in range(known, len(prompt), 512):
            (token,) = self.decode(prompt[start : start + 512], start, 1)
        text, now = [*prompt, token], clock()
        began, most = now(), len(prompt) + count
        while len(text) < most and text[-1] not in ends:
            drafted = looked_up(text)[: most - len(text) - 1] if drafts else []
            best = self.decode([text[-1], *drafted], len(text) - 1, 1 + len(drafted))
            stood = next((i for i, token in enumerate(drafted) if token != best[i] or token in ends), len(drafted))
            text += best[: stood + 1]
            if stood < len(drafted):
                self.lib.llama_memory_seq_rm(self.memory, 0, len(text) - 1, -1)
        return text[len(prompt) :], (now() - began) / max(1, len(text) - len(prompt) - 1)

    def rows(self, count: int, turns: int = 12) -> float:
        """The seconds of a call with so many rows behind 64 tokens."""
        self.lib.llama_memory_seq_rm(self.memory, 0, -1, -1)
        self.read = ()
        self.decode(range(100, 164), 0, 1)
        times, now = [], clock()
        for turn in range(turns):
            began = now()
            self.decode([turn + 7 * i for i in range(count)], 64, count)
            times.append(now() - began)
            self.lib.llama_memory_seq_rm(self.memory, 0, 64, -1)
        return min(times)


def looked_up(text: list[int]) -> list[int]:
    """What followed the last tokens of a text where they stood last."""
    for size in NGRAMS:
        tail = text[-size:]
        for at in range(len(text) - size - 1, -1, -1):
            if text[at : at + size] == tail:
                return text[at + size : at + size + DRAFTED]
    return []


def timed(lm: LM, prompt: Sequence[int], count: int, method: str) -> tuple[tuple[int, ...], float]:
    """A greedy text, and the seconds that a token after the first took: a text of one token is taken off."""
    now, spent = clock(), []
    for size in (1, count):
        began = now()
        out = lm.generate(list(prompt), Settings(max_tokens=size, temperature=0.0), method=method)
        spent.append(now() - began)
    return tuple(out.tokens), (spent[1] - spent[0]) / max(1, len(out.tokens) - 1)


def clock() -> Callable[[], float]:
    """The time of the processor where one thread works, so that others on the machine count less; else the wall's."""
    return process_time if torch.get_num_threads() == 1 else perf_counter


def race(
    lm: LM, bare: Bare, prompts: dict[str, tuple[int, ...]], methods: Sequence[str], count: int, repeats: int
) -> dict[str, Any]:
    """Milliseconds a token of every contender on every family, the median of some turns."""
    names = (*BARE, *methods)
    found: dict[str, dict[str, list[float]]] = {family: {name: [] for name in names} for family in prompts}
    for family, prompt in prompts.items():
        timed(lm, prompt, 1, "plain")  # so that the prompt is in the prefix cache
        for _ in range(repeats):
            for name in names:
                if name in BARE:
                    _, seconds = bare.write(prompt, count, lm.vocabulary.eos, name == "ngram")
                else:
                    _, seconds = timed(lm, prompt, count, name)
                found[family][name].append(1000 * seconds)
    return {family: {name: round(median(times), 3) for name, times in row.items()} for family, row in found.items()}


def scored_rows(lm: LM, bare: Bare) -> dict[str, Any]:
    """Milliseconds of a forward by its rows: bare, and through a session that scores a chain."""
    cost = measure(lm.model, ROWS, repeats=8, seconds=5)
    ours = {str(n): round(1000 * t, 3) for n, t in zip(cost.rows, cost.times, strict=True)}
    return {"bare": {str(n): round(1000 * bare.rows(n), 3) for n in ROWS}, "ours": ours}


def parted(name: str, prompts: dict[str, tuple[int, ...]], count: int, packed: bool = False) -> dict[str, Any]:
    """Greedy texts of the native runtime and of llama.cpp's: how many are the same, where others part.

    Native weights are whole ones in float32, or `packed`, as a CPU has them by default.
    """
    weights = "packed" if packed else "none"
    native = load(name, runtime="native", dtype="fp32", quantization=weights, device="cpu")
    llama = load(name, runtime="llama.cpp", dtype="fp32", device="cpu")
    passes = [*passes_of(native.model), *passes_of(llama.model)]
    same, found = 0, []
    for family, prompt in prompts.items():
        ours, theirs = (timed(lm, prompt, count, "plain")[0] for lm in (native, llama))
        apart = divergence(prompt, ours, theirs, passes)
        same += apart is None
        if apart is not None:
            found.append({"prompt": family, "near_tie": apart.near_tie, "text": str(apart)})
    ties = sum(one["near_tie"] for one in found)
    return {"prompts": len(prompts), "tokens": count, "same": same, "near_ties": ties, "parted": found}


def gain(families: dict[str, dict[str, float]], slow: str, fast: str) -> dict[str, float]:
    """How many times as fast one is as another: on the mean of the families' ratios, and where it is least."""
    ratios = [row[slow] / row[fast] for row in families.values()]
    return {"mean": round(sum(ratios) / len(ratios), 3), "least": round(min(ratios), 3)}


def family_of(text: str) -> str:
    """The family of a text that `prompts_of` has named."""
    return text.rpartition(" ")[0]


def together(texts: dict[str, dict[str, float]], tokens: dict[str, int]) -> dict[str, dict[str, float]]:
    """Milliseconds a token of every family: those of its texts, `chat 1`, `chat 2`, …, by how many tokens each has."""
    spent: dict[str, dict[str, float]] = {}
    count: dict[str, int] = {}
    for text, row in texts.items():
        family = family_of(text)
        count[family] = count.get(family, 0) + tokens[text]
        sums = spent.setdefault(family, dict.fromkeys(row, 0.0))
        for name, each in row.items():
            sums[name] += each * tokens[text]
    return {family: {name: all_ / count[family] for name, all_ in row.items()} for family, row in spent.items()}


def prompts_of(lm: LM, folder: Path, limit: int) -> dict[str, tuple[int, ...]]:
    """The first questions of every family as a user's first message, as far as they are short enough for a CPU."""
    found = {}
    for family, texts in questions(folder, 0, 80).items():
        asked = [lm.encode([{"role": "user", "content": text}]) for text in texts]
        short = [tokens for tokens in asked if len(tokens) <= LONGEST] or asked
        found |= {f"{family} {i}": tokens for i, tokens in enumerate(short[:limit], 1)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--runtime", default="llama.cpp", help="ours: llama.cpp or native")
    parser.add_argument("--methods", nargs="+", default=METHODS, help="plain among them")
    parser.add_argument("--diverge", type=int, default=0, metavar="PROMPTS")
    parser.add_argument("--json", default="")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    lm = load(given.model, runtime=given.runtime, device="cpu", kv_cache_tokens=ROOM)
    prompts = prompts_of(lm, given.data, max(1, -(-given.diverge // 6)))
    if given.diverge:
        found = parted(given.model, dict(list(prompts.items())[: given.diverge]), given.tokens)
    else:
        bare = Bare(str(path(given.model)), given.threads)
        families = race(lm, bare, prompts, given.methods, given.tokens, given.repeats)
        found = {"rows_ms": scored_rows(lm, bare), "ms_a_token": families}
        found["plain_over_bare"] = gain(families, "bare", "plain")["mean"]
        found["over_plain"] = {name: gain(families, "plain", name) for name in given.methods}
        found["ngram_over_bare"] = gain(families, "bare", "ngram")
    about = {
        "model": given.model,
        "runtime": given.runtime,
        "xllamacpp": version("xllamacpp"),
        "threads": given.threads,
        "tokens": given.tokens,
    }
    result = {**about, "clock": clock().__name__, **found}
    print(result, flush=True)
    if given.json:
        save(given.json, result)


if __name__ == "__main__":
    main()

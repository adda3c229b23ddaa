"""Time decoding on a CPU: packed weights against whole ones and against llama.cpp with the same file, turn by turn.

    python bench/cpu.py [--model FILE] [--whole fp32 bf16] [--repeats 9] [--threads N] [--json FILE]
    python bench/cpu.py --families 4 --diverge 24 [--data FOLDER] [--tokens 192] [--turns 1] [--json FILE]

Every number is milliseconds, the median and the least of all turns. `rows` reads so many new tokens behind a cached
text and gives the logits of all of them, which is what verifying a draft costs; `token` is greedy decoding, per token:
`LM.generate` with all its machinery, the prompt not counted. llama.cpp runs through the wheel `xllamacpp` where the
llama.cpp runtime and it are installed, by calls of `llama_decode`; its tokens are the likeliest ones, found by torch.
With one thread all of it is the processor's time, which others on the machine disturb less, else the wall's.
With `--families N` methods without a draft model, llama.cpp's runtime, its bare loop and its prompt lookup write the
first N prompts of every family of Spec-Bench in turns (bench/cpu_families.py), the rows of their forwards are counted
and priced, and the start of a process is timed;
`--diverge N` compares N greedy texts of the native runtime with those of llama.cpp's.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import cpu_families
import llamacpp
import torch
from record import save
from spec import DATA

import unspool
from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.errors import MissingExtra
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.runtime.network.network import Batch, Row

ROWS = (1, 2, 4, 8, 16)
BEHIND, DECODED = 128, 32
CACHED = 1024  # tokens of the cache where memory is measured
DIVERGING = 48  # tokens of texts that are compared with llama.cpp's
LLAMA_CPP = "llama.cpp"


class Contender(Protocol):
    """Something that reads tokens behind a text of `BEHIND`, and decodes from there."""

    def step(self, tokens: list[int]) -> object:
        """Read these tokens, give all logits, and forget them again."""

    def token(self) -> float:
        """Milliseconds per token of greedy decoding."""


class Unspool:
    """The native runtime."""

    def __init__(self, lm: LM, text: list[int]) -> None:
        self.lm, self.text, self.net = lm, text, lm.model.network
        self.slots = self.net.slots.take(BEHIND + max(ROWS))
        self._read(text, 0)

    def _read(self, tokens: list[int], past: int) -> torch.Tensor:
        end = past + len(tokens)
        row = Row(0, len(tokens), self.slots[:end], range(end))
        batch = Batch(
            torch.tensor(tokens), torch.arange(past, end), self.slots[past:end], [row], torch.arange(len(tokens))
        )
        return self.net.forward(batch).logits

    def step(self, tokens: list[int]) -> object:
        return self._read(tokens, BEHIND)

    def token(self) -> float:
        def spent(count: int) -> float:
            now = llamacpp.clock()
            start = now()
            self.lm.generate(self.text, Settings(max_tokens=count, ignore_eos=True))
            return now() - start

        return 1e3 * (spent(DECODED + 1) - spent(1)) / DECODED


class LlamaCpp:
    """llama.cpp's own functions, by the layouts that the llama.cpp runtime has written down."""

    def __init__(self, file: Path, text: list[int], threads: int) -> None:
        self.library = import_module("unspool.runtime.llamacpp.library")
        self.c, self.text = self.library.library(), text
        asked = self.c.llama_context_default_params()
        asked.n_ctx, asked.n_threads, asked.n_threads_batch = 1024, threads, threads
        model = self.c.llama_model_load_from_file(str(file).encode(), self.c.llama_model_default_params())
        self.context, self.memory = self.c.llama_init_from_model(model, asked), None
        self.vocab = self.c.llama_vocab_n_tokens(self.c.llama_model_get_vocab(model))
        self.memory = self.c.llama_get_memory(self.context)
        self._read(text, 0)

    def _read(self, tokens: list[int], past: int) -> torch.Tensor:
        count = len(tokens)
        ids, at = (ctypes.c_int32 * count)(*tokens), (ctypes.c_int32 * count)(*range(past, past + count))
        number, wanted = (ctypes.c_int32 * count)(*[1] * count), (ctypes.c_int8 * count)(*[1] * count)
        zero = (ctypes.c_int32 * 1)(0)
        whose = (ctypes.c_void_p * count)(*[ctypes.addressof(zero)] * count)
        parts = (ctypes.addressof(part) for part in (at, number, whose, wanted))
        batch = self.library.BatchStruct(count, ctypes.addressof(ids), None, *parts)
        if self.c.llama_decode(self.context, batch):
            raise RuntimeError(f"llama.cpp cannot decode: {self.library.said()}")
        rows = self.c.llama_get_logits_ith(self.context, count - 1)
        return torch.frombuffer((ctypes.c_float * self.vocab).from_address(rows), dtype=torch.float32)

    def step(self, tokens: list[int]) -> object:
        return self._forgotten(lambda: self._read(tokens, BEHIND))

    def _forgotten(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        finally:
            self.c.llama_memory_seq_rm(self.memory, 0, BEHIND, -1)

    def token(self) -> float:
        return float(self._forgotten(self._decode))

    def _decode(self) -> float:
        token, now = self.text[-1], llamacpp.clock()
        start = now()
        for place in range(BEHIND, BEHIND + DECODED):
            token = int(self._read([token], place).argmax())
        return 1e3 * (now() - start) / DECODED


def contenders(file: Path, text: list[int], whole: list[str]) -> dict[str, Contender]:
    found: dict[str, Contender] = {"packed": Unspool(unspool.load(file, quantization="packed", device="cpu"), text)}
    for name in whole:
        found[name] = Unspool(unspool.load(file, quantization="none", dtype=name, device="cpu"), text)
    try:
        found[LLAMA_CPP] = LlamaCpp(file, text, torch.get_num_threads())
    except ModuleNotFoundError as missing:
        print(f"without llama.cpp: {missing}")
    return found


def memory(model: str) -> dict[str, float]:
    """Megabytes at the peak of a process that loads the model and decodes, above importing torch; and of the cache."""
    code = (
        "import resource, sys, torch\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6\n"
        "torch_alone = most()\n"
        "import unspool\n"
        f"lm = unspool.load(sys.argv[1], quantization='packed', device='cpu', kv_cache_tokens={CACHED})\n"
        "lm.generate('Once', unspool.Settings(max_tokens=4))\n"
        "print(most() - torch_alone)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True, check=True)
    shape = open_checkpoint(path(model)).shape
    cache = CACHED * shape.kv_bytes(torch.float32)
    return {"peak_mb": round(float(done.stdout.splitlines()[-1])), "cache_mb": round(cache / 1e6)}


def timed(act: Callable[[], object]) -> float:
    now = llamacpp.clock()
    start = now()
    act()
    return 1e3 * (now() - start)


@torch.no_grad()
def measure(
    file: Path, repeats: int, whole: list[str]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Medians and least times, by side and case."""
    text = torch.randint(100, 40000, (BEHIND + max(ROWS),), generator=torch.Generator().manual_seed(0)).tolist()
    sides = contenders(file, text[:BEHIND], whole)
    cases: dict[str, Callable[[Contender], float]] = {
        f"rows {count}": lambda side, count=count: timed(lambda: side.step(text[BEHIND : BEHIND + count]))  # type: ignore[misc]
        for count in ROWS
    }
    cases["token"] = lambda side: side.token()
    times: dict[tuple[str, str], list[float]] = {(name, case): [] for name in sides for case in cases}
    for turn in range(repeats + 1):  # so that whatever else the machine does meets all sides and cases
        for case, act in cases.items():
            for name, side in sides.items():
                spent = act(side)
                if turn:
                    times[name, case].append(spent)
    results = {name: {case: round(median(times[name, case]), 2) for case in cases} for name in sides}
    least = {name: {case: round(min(times[name, case]), 2) for case in cases} for name in sides}
    for kind, found in (("median", results), ("least", least)):
        print(f"{kind:10}" + "".join(f"{name:>12}" for name in sides))
        for case in cases:
            print(f"{case:10}" + "".join(f"{found[name][case]:>12}" for name in sides))
    return results, least


def families(args: argparse.Namespace) -> dict[str, Any]:
    """What drafts bring by family."""
    if not args.families:
        return {}
    native = unspool.load(args.model, device="cpu", kv_cache_tokens=llamacpp.ROOM)
    native.key = None  # rows are priced in this run, and not as some other run has found them
    theirs, bare = None, None
    try:
        bare = llamacpp.Bare(str(path(args.model)), torch.get_num_threads())
        theirs = unspool.load(args.model, runtime=LLAMA_CPP, device="cpu", kv_cache_tokens=llamacpp.ROOM)
    except (ModuleNotFoundError, MissingExtra) as missing:
        print(f"without llama.cpp: {missing}")
    prompts = llamacpp.prompts_of(native, args.data, args.families)
    counted = cpu_families.rounds(native, prompts, args.tokens, args.methods)
    raced = cpu_families.families(native, theirs, bare, prompts, args.tokens, args.turns, args.methods)
    return {**raced, "rounds": counted}


def started(args: argparse.Namespace) -> dict[str, Any]:
    """How long a process takes from the shell to the first token."""
    return {"start": cpu_families.started(args.model)} if args.families else {}


def diverged(args: argparse.Namespace) -> dict[str, Any]:
    """Where texts part from those of llama.cpp's runtime."""
    if not args.diverge:
        return {}
    lm = unspool.load(args.model, device="cpu", kv_cache_tokens=llamacpp.ROOM)
    every = llamacpp.prompts_of(lm, args.data, args.diverge).items()
    inturn = sorted(every, key=lambda item: int(item[0].rpartition(" ")[2]))  # some families have few short ones
    return {"diverge": llamacpp.parted(args.model, dict(inturn[: args.diverge]), DIVERGING, packed=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2", help="a .gguf file with blocks, or a name of the catalogue")
    parser.add_argument("--whole", nargs="*", default=["fp32", "bf16"], help="precisions of whole weights beside it")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="one per free core: a busy core stalls all sides")
    parser.add_argument("--families", type=int, default=0, metavar="N", help="prompts of each, for what drafts bring")
    parser.add_argument("--turns", type=int, default=1, help="of every contender on each of these prompts")
    parser.add_argument("--methods", nargs="+", default=cpu_families.METHODS, help="that write them, plain among them")
    parser.add_argument("--diverge", type=int, default=0, metavar="N", help="texts to compare with llama.cpp's runtime")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    file, needed = path(args.model), memory(args.model)
    results, least = measure(file, args.repeats, args.whole)
    most = file.stat().st_size / 1e6 + needed["cache_mb"]
    summary = {"memory at its peak, above file and cache, MB": round(needed["peak_mb"] - most)}
    for kind, found in (("median", results), ("least", least)):
        packed = found["packed"]
        summary |= {f"{kind}: {n} rows, times one": round(packed[f"rows {n}"] / packed["rows 1"], 2) for n in ROWS[1:]}
        if LLAMA_CPP in found:
            faster = found[LLAMA_CPP]["token"] / packed["token"]
            summary[f"{kind}: tokens per second, times llama.cpp's"] = round(faster, 2)
    for line in summary.items():
        print(*line, flush=True)
    wheel = metadata.version("xllamacpp") if LLAMA_CPP in results else None
    about = {"model": file.name, "bytes": file.stat().st_size, "threads": torch.get_num_threads()}
    found = {**about, **needed, "xllamacpp": wheel, "median_ms": results, "least_ms": least, "summary": summary}
    for part in (families, started, diverged):  # kept one by one: together they take minutes
        found |= part(args)
        if args.json:
            save(args.json, found)
    print({name: value for name, value in found.items() if name not in ("median_ms", "least_ms", "summary")})
    if found.get("differs"):
        raise SystemExit(f"these did not write what plain decoding writes: {found['differs']}")


if __name__ == "__main__":
    main()

"""Time one forward of the native network against transformers with the same weights, turn by turn in one run.

    python bench/step.py [--model FILE] [--repeats 15] [--threads N] [--json FILE]
    python bench/step.py --alone        # without transformers: to compare two trees, each with its own sources

Every number is a median in milliseconds. `step` reads some new tokens behind a cached text and gives all their logits;
`token` is greedy decoding, per token: `LM.generate` with all its machinery against `generate`, the prompt not counted.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from statistics import median
from time import perf_counter

import torch
import transformers
from record import save

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.models.address import path
from unspool.models.weights import Checkpoint, open_checkpoint
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.network.llama import Llama
from unspool.runtime.network.network import Batch, Row
from unspool_bench.transformers_peer import mirror

STEPS = ((1, 128), (1, 1024), (8, 128), (64, 128))  # (new tokens, tokens before them)
DECODED, PROMPT = 32, 128
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Ours:
    """The native network with one text in its slots."""

    def __init__(self, net: Llama, text: torch.Tensor, room: int) -> None:
        self.net, self.slots = net, net.slots.take(len(text) + room)
        self.read(text, 0, read=torch.tensor([len(text) - 1]))

    def read(self, tokens: torch.Tensor, past: int, read: torch.Tensor | None = None) -> torch.Tensor:
        count, end = len(tokens), past + len(tokens)
        row = Row(0, count, self.slots[:end], range(end))
        read = torch.arange(count) if read is None else read
        return self.net.forward(Batch(tokens, torch.arange(past, end), self.slots[past:end], [row], read)).logits


def time_of(act: Callable[[], object]) -> float:
    start = perf_counter()
    act()
    return 1e3 * (perf_counter() - start)


def race(ours: Callable[[], float], theirs: Callable[[], float] | None, repeats: int) -> dict[str, float]:
    """Time both in turns, so that whatever else the machine does meets both; alone, the median and the least."""
    if theirs is None:
        ours()
        times = [ours() for _ in range(repeats)]
        return {"ours_ms": round(median(times), 2), "least_ms": round(min(times), 2)}
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    a, b = median(pair[0] for pair in pairs), median(pair[1] for pair in pairs)
    return {"ours_ms": round(a, 2), "transformers_ms": round(b, 2), "times_faster": round(b / a, 2)}


@torch.no_grad()
def measure(checkpoint: Checkpoint, dtype: torch.dtype, repeats: int, alone: bool) -> dict[str, dict[str, float]]:
    net, model = Llama.load(checkpoint, dtype), None if alone else mirror(checkpoint, dtype)
    found: dict[str, dict[str, float]] = {}
    longest = max(past for _, past in STEPS)
    text = torch.randint(100, checkpoint.shape.vocab, (longest + 64,), generator=torch.Generator().manual_seed(0))
    for past in sorted({past for _, past in STEPS}):
        ours = Ours(net, text[:past], 64)
        cache = None if model is None else transformers.DynamicCache(config=model.config)
        if model is not None:
            model(text[None, :past], past_key_values=cache, logits_to_keep=1)
        for count in sorted(count for count, behind in STEPS if behind == past):
            new = text[past : past + count]

            def their_step(new: torch.Tensor = new, past: int = past, cache: object = cache) -> float:
                spent = time_of(lambda: model(new[None], past_key_values=cache))
                cache.crop(past - cache.get_seq_length())  # a negative number is how many to forget
                return spent

            def our_step(new: torch.Tensor = new, past: int = past, ours: Ours = ours) -> float:
                return time_of(lambda: ours.read(new, past))

            raced = race(our_step, None if alone else their_step, repeats)
            found[f"step {count} @ {past}"] = show(dtype, f"step {count} @ {past}", raced)
        net.slots.drop(ours.slots)
    lm, prompt = LM("ours", CachedModel(net), checkpoint.vocabulary()), text[:PROMPT]

    def ours_of(count: int) -> float:
        return time_of(lambda: lm.generate(prompt.tolist(), Settings(max_tokens=count, ignore_eos=True)))

    def theirs_of(count: int) -> float:
        return time_of(
            lambda: model.generate(prompt[None], do_sample=False, min_new_tokens=count, max_new_tokens=count)
        )

    decoded = race(
        lambda: (ours_of(DECODED + 1) - ours_of(1)) / DECODED,
        None if alone else lambda: (theirs_of(DECODED + 1) - theirs_of(1)) / DECODED,
        max(5, repeats // 2),
    )
    found[f"token @ {PROMPT}"] = show(dtype, f"token @ {PROMPT}", decoded)
    return found


def show(dtype: torch.dtype, case: str, r: dict[str, float]) -> dict[str, float]:
    print(
        f"{str(dtype)[6:]:10}{case:16}" + "".join(f"{name:>16} {value:8.2f}" for name, value in r.items()), flush=True
    )
    return r


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a .gguf file or a folder; the default model if left out")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, help="one per free core: a busy core stalls both sides")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    checkpoint = open_checkpoint(path(args.model or "smollm2"))
    results = {}
    for name, dtype in DTYPES.items():
        results[name] = measure(checkpoint, dtype, args.repeats, args.alone)
    if args.json:
        save(args.json, {"model": checkpoint.title, "median_ms": results})


if __name__ == "__main__":
    main()

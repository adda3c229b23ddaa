"""Filling holes on this device: looks checked against float32, then timed, beside transformers' eager forward.

    python bench/canvas.py [--model smollm2-diffusion] [--data FOLDER] [--limit 12] [--max-tokens 128] [--json FILE]

`eager` is the same policy (all holes above 0.9, blocks of 16) with the same weights in transformers: the text's keys
cached, a block per forward, written as its authors' samplers are. All methods of a table run in the same process, one
prompt after the other; times are wall time with the prompt in it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import transformers
from record import save
from spec import DATA, questions
from step import mirror

from unspool.api.lm import LM
from unspool.api.loader import device_of, load
from unspool.api.settings import Settings
from unspool.core.asks import Look
from unspool.core.canvas import HOLE, Canvas
from unspool.models.address import path
from unspool.models.weights import open_checkpoint
from unspool.runtime.engine.contracts import LookRequest
from unspool_bench.suites import CHAT

POLICY = "confident:threshold=0.9,block=16"
METHODS = ["plain", POLICY, "masks", "masks:nodes=12,ahead=3", "merge", "auto"]
BLOCK, SURE = 16, 0.9


def looked(lm: LM, text: tuple[int, ...], holes: int, filled: dict[int, int]) -> torch.Tensor:
    """The logits of one look."""
    canvas = Canvas.blank(text, holes)
    canvas = canvas.fill(filled) if filled else canvas
    session = lm.model.open(text)
    (field,) = lm.model.look([LookRequest(session, Look(canvas))])
    session.close()
    return field.scores.float().cpu()


def difference(lm: LM, exact: LM, text: tuple[int, ...]) -> float:
    """The largest difference of a probability between two runtimes of one model, blank and half filled."""
    filled = {len(text) + i: 100 + i for i in (1, 4, 5, 9)}
    worst = 0.0
    for some in ({}, filled):
        one, other = (looked(each, text, BLOCK, some).softmax(1) for each in (lm, exact))
        worst = max(worst, float((one - other).abs().max()))
    return worst


def look_time(lm: LM, text: tuple[int, ...], holes: int, repeats: int = 40) -> float:
    """Milliseconds of a look behind a cached text, as a decoder waits for it: with its peaks."""
    session, canvas, times = lm.model.open(text), Canvas.blank(text, holes), []
    for _ in range(repeats):
        began = perf_counter()
        (field,) = lm.model.look([LookRequest(session, Look(canvas))])
        assert field.peaks
        times.append(1e3 * (perf_counter() - began))
    session.close()
    return median(times)


class Eager:
    """The policy over transformers, for one text at a time."""

    def __init__(self, name: str, device: str, dtype: torch.dtype) -> None:
        checkpoint = open_checkpoint(path(name))
        self.model = mirror(checkpoint, dtype).to(device)
        self.mask = checkpoint.tensor("model.mask", dtype).to(device)
        self.id = checkpoint.shape.filling.mask
        self.device = device

    @torch.inference_mode()
    def write(self, prompt: tuple[int, ...], most: int, stops: frozenset[int]) -> tuple[list[int], int, float]:
        """Tokens, forwards, seconds."""
        began, forwards = perf_counter(), 1
        cache = transformers.DynamicCache()
        text = torch.tensor([prompt], device=self.device)
        first = self.model(text, past_key_values=cache, use_cache=True).logits[0, -1]
        written: list[int] = []
        while len(written) < most and not stops.intersection(written):
            block = [HOLE] * min(BLOCK, most - len(written))
            while HOLE in block:
                logits = self._filled(block, cache, len(prompt) + len(written))
                forwards += 1
                logits = torch.cat((first[None], logits[:-1])).float()
                logits[:, self.id] = float("-inf")
                p, tokens = logits.softmax(1).max(1)
                p[torch.tensor([x != HOLE for x in block], device=self.device)] = -1
                chosen = (p >= SURE).nonzero().flatten().tolist() or [int(p.argmax())]
                for i in chosen:
                    block[i] = int(tokens[i])
            again = torch.tensor([block], device=self.device)
            first = self.model(again, past_key_values=cache, use_cache=True).logits[0, -1]
            forwards += 1
            written += block
        end = next((i + 1 for i, x in enumerate(written) if x in stops), len(written))
        return written[:end], forwards, perf_counter() - began

    def _filled(self, block: list[int], cache: transformers.DynamicCache, past: int) -> torch.Tensor:
        tokens = torch.tensor(block, device=self.device)
        shown = self.model.get_input_embeddings()(tokens.clamp(min=0))
        shown = torch.where((tokens == HOLE)[:, None], self.mask, shown)[None]
        everything = torch.zeros(1, 1, len(block), past + len(block), device=self.device, dtype=shown.dtype)
        logits = self.model(
            inputs_embeds=shown, attention_mask=everything, past_key_values=cache, use_cache=True
        ).logits
        cache.crop(past)
        return logits[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--model", default="smollm2-diffusion")
    parser.add_argument("--limit", type=int, default=12)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    device = device_of(args.device)
    dtype = "bf16" if device.startswith("cuda") else "fp32"
    lm, exact = load(args.model, device=device, dtype=dtype), load(args.model, device=device, dtype="fp32")
    prompts = [lm.encode([{"role": "user", "content": q}]) for q in questions(args.data, 0, args.limit)[CHAT]]
    result: dict[str, object] = {"largest_difference_of_a_probability": difference(lm, exact, prompts[0])}
    result["look_ms"] = {holes: round(look_time(lm, prompts[0], holes), 3) for holes in (8, 16, 32)}
    result["look_ms_float32"] = {holes: round(look_time(exact, prompts[0], holes, 10), 3) for holes in (16,)}
    print(result, flush=True)
    settings = Settings(max_tokens=args.max_tokens)
    rows: dict[str, list[float]] = {}
    eager = Eager(args.model, device, torch.bfloat16 if dtype == "bf16" else torch.float32)
    for name in [*args.methods, "eager"]:
        done = [0, 0, 0.0]
        for number, prompt in enumerate([prompts[0], *prompts]):
            if name == "eager":
                tokens, forwards, seconds = eager.write(prompt, args.max_tokens, lm.vocabulary.eos)
            else:
                lm.model.forget()
                output = lm.generate(prompt, settings, name)
                tokens, forwards, seconds = output.tokens, output.trace.forwards["target"], output.trace.seconds_total
            if number:  # the first is for warm-up: graphs are captured
                done = [done[0] + len(tokens), done[1] + forwards, done[2] + seconds]
        rows[name] = [done[0] / done[1], done[0] / done[2], 1e3 * done[2] / done[1]]
        each, speed, step = rows[name]
        print(f"{name:34} {each:6.2f} tokens/forward {speed:9.0f} tokens/s {step:7.2f} ms/forward", flush=True)
    print(f"{POLICY}: {rows[POLICY][1] / rows['eager'][1]:.1f} times the eager sampler's tokens per second")
    result["methods"] = {
        name: dict(zip(("tokens_per_forward", "tokens_per_second", "ms_per_forward"), row, strict=True))
        for name, row in rows.items()
    }
    if args.json:
        save(args.json, {"model": args.model, "device": device, "max_tokens": args.max_tokens, **result})


if __name__ == "__main__":
    main()

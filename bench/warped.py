"""What people really send, on the GPU: tokens per second under every usual setting, against greedy plain decoding.

Part of bench/gpu.py, which runs all of it. Everything a user waits for is in it: prompts, engine, and the text made of
the tokens. No text ends early, but for those of a schema, of which there are two. `SCHEMA` makes texts of 30 to 90
tokens, `LONG` texts that are cut at 128 tokens, as many as the greedy ones have. Prompts take their time whatever is
written after them, and rows that have ended leave the others alone; so what a schema costs is told beside greedy texts
of the same prompts and of the very lengths that its texts have, and beside those of 128 tokens as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from unspool import json_schema
from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.runtime.engine.engine import Engine

Row = tuple[str, str, str]  # what, measured, bar

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 5},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
LONG = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 60},
        "paragraphs": {
            "type": "array",
            "items": {"type": "string", "minLength": 120, "maxLength": 200},
            "minItems": 4,
            "maxItems": 6,
        },
    },
    "required": ["title", "paragraphs"],
    "additionalProperties": False,
}
FORMS = {"JSON schema": SCHEMA, "JSON schema, as long as greedy": LONG}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "T = 0.7": {"temperature": 0.7},
    "greedy + a stop string": {"stop": ("@@@",)},
    "T = 0.7, top_p = 0.9": {"temperature": 0.7, "top_p": 0.9},
    "T = 0.7, top_p = 0.9, top_k = 50": {"temperature": 0.7, "top_p": 0.9, "top_k": 50},
    "T = 0.7, min_p = 0.05": {"temperature": 0.7, "min_p": 0.05},
    "T = 0.7, typical = 0.9": {"temperature": 0.7, "typical": 0.9},
    "repetition_penalty = 1.1": {"repetition_penalty": 1.1},
    "frequency_penalty = 0.3": {"frequency_penalty": 0.3},
    "no_repeat_ngram_size = 3": {"no_repeat_ngram_size": 3},
    "logit_bias": {"logit_bias": {198: -2.0, 28: 1.0, 30: -1.0}},
    "logprobs = 5": {"logprobs": 5},
}
BARS = {1: 0.9, 32: 0.85, 128: 0.85}
LOGPROBS, MIXED, MASKED, FORCED = 0.8, 0.8, 0.7, 1.0
LONG_ENOUGH = 2.0  # seconds after which a row is not tried a third time
ALL, ALIKE = "all of these in one batch", "greedy of its lengths"


def written(lm: LM, prompts: Sequence[Any], settings: Sequence[Settings], spec: str) -> tuple[list[int], float]:
    """How many tokens each prompt of a batch got, under settings of its own, and the seconds that all of them took."""
    lm.model.forget()
    engine = Engine(lm.models(), lm.price)
    began = time.perf_counter()
    asked = zip(prompts, settings, strict=True)
    writers = [writer for prompt, own in asked for writer in lm.writers(engine, [prompt], own, spec)]
    engine.run()
    return [len(writer.output().tokens) for writer in writers], time.perf_counter() - began


def speed(lm: LM, prompts: Sequence[Any], settings: Sequence[Settings], spec: str = "plain", tries: int = 3) -> float:
    """Tokens per second of one batch: the best of some tries, of two where they take long."""
    speeds: list[float] = []
    began = time.perf_counter()
    while len(speeds) < 2 or (len(speeds) < tries and time.perf_counter() - began < LONG_ENOUGH):
        tokens, seconds = written(lm, prompts, settings, spec)
        speeds.append(sum(tokens) / seconds)
    return max(speeds)


def as_long(lm: LM, prompts: Sequence[Any], settings: Settings) -> float:
    """Tokens per second of greedy texts of the lengths that plain decoding has under these settings."""
    lengths, _ = written(lm, prompts, [settings] * len(prompts), "plain")
    return speed(lm, prompts, [Settings(max_tokens=length, ignore_eos=True) for length in lengths])


def warped(lm: LM, texts: Sequence[Any], most: int = 128) -> tuple[dict[str, Any], list[Row]]:
    """Every row of settings for 1, 32 and 128 texts, and a batch of all of them; for 1 and 32 also schemas and `auto`.

    Rows are printed as they come.
    """
    found: dict[str, Any] = {}
    rows: list[Row] = []
    for crowd, bar in BARS.items():
        prompts = [texts[i % len(texts)] for i in range(crowd)]
        speeds: dict[str, float] = {}
        every = {name: Settings(max_tokens=most, ignore_eos=True, **given) for name, given in SETTINGS.items()}
        for name, settings in every.items():
            speeds[name] = speed(lm, prompts, [settings] * crowd)
        if crowd > 1:
            several = list(every.values())
            speeds[ALL] = speed(lm, prompts, [several[i % len(several)] for i in range(crowd)])
        if crowd < 128:
            for name in ("greedy", "T = 0.7", "T = 0.7, top_p = 0.9"):
                speeds[f"{name}, auto"] = speed(lm, prompts, [every[name]] * crowd, "auto")
        print_new(crowd, bar, speeds, rows)
        for form, schema in FORMS.items() if crowd < 128 else ():
            constrained = Settings(max_tokens=most, constraint=json_schema(schema))
            speeds[f"{form}, {ALIKE}"] = as_long(lm, prompts, constrained)
            for spec in ("plain", "forced", "auto"):
                speeds[f"{form}, {spec}"] = speed(lm, prompts, [constrained] * crowd, spec)
            print_new(crowd, bar, speeds, rows)
        found[str(crowd)] = speeds
    return found, rows


def print_new(crowd: int, bar: float, speeds: dict[str, float], rows: list[Row]) -> None:
    """Add what is not among the rows yet, and print it."""
    told = {label for label, *_ in rows}
    new = [line for line in (row(name, crowd, bar, speeds) for name in speeds) if line[0] not in told]
    print("\n".join(" | ".join(line) for line in new), flush=True)
    rows += new


def row(name: str, crowd: int, bar: float, speeds: dict[str, float]) -> Row:
    """A line of the table: beside greedy texts, and for a schema beside greedy ones of the same lengths."""
    per, form = speeds[name], name.rpartition(", ")[0]
    label, said = (
        f"{name}, {crowd} text{'s' * (crowd > 1)}",
        f"{per:,.0f} tokens/s, {per / speeds['greedy']:.2f}× greedy",
    )
    if form not in FORMS:
        wanted = LOGPROBS if "logprobs" in name else MIXED if name == ALL else bar
        return label, said, f"≥ {wanted}×"
    if name.endswith(ALIKE):
        return label, said, ""
    wanted = FORCED if name.endswith("forced") and crowd == 1 else MASKED
    return label, f"{said}, {per / speeds[f'{form}, {ALIKE}']:.2f}× {ALIKE}", f"≥ {wanted}×"

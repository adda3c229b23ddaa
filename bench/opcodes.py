"""How many instructions of Python an ask and a token take: the same on every machine, however busy it is.

    python bench/opcodes.py [--tokens 16] [--json FILE]

Per ask it is the protocol alone, by the decoders and the model of `bench/asks.py`; per token `LM.generate` with the
default model on the CPU, prompt and all. Compare two trees with it where a clock tells nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from asks import METHODS, Instant
from record import save

import unspool
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.runtime.engine.engine import Engine

ASKED = 200  # tokens per decoder
PROMPT = "one two three, one two three, one two"


def counted(run: Callable[[], Any]) -> tuple[int, Any]:
    """The instructions that a call executes, its own and those of all that it calls, and what it gives."""
    count = 0

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        given = run()
    finally:
        sys.settrace(None)
    return count, given


def per_ask(method: Any) -> float:
    """Instructions per ask of a decoder whose model answers at once; the first run, which fills caches, is not seen."""
    for most in (ASKED // 10, ASKED):
        engine = Engine({"target": Instant(), "draft": Instant()})
        job = engine.submit(method, (1, 2, 3), Philox(0), stop=Stop(most=most))
        count, _ = counted(engine.run)
    return count / job.trace.asks


def per_token(lm: unspool.LM, method: str, tokens: int) -> float:
    """Instructions per token of a text, with nothing of it in the cache."""
    settings = unspool.Settings(max_tokens=tokens, temperature=0.8, seed=7, ignore_eos=True)
    lm.generate(PROMPT, settings, method, raw=True)
    lm.model.forget()
    count, output = counted(lambda: lm.generate(PROMPT, settings, method, raw=True))
    return count / len(output.tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    lm = unspool.load("smollm2", device="cpu")
    rows = {f"ask: {name}": per_ask(method) for name, method in METHODS.items()}
    rows |= {f"token: {name}": per_token(lm, name, args.tokens) for name in ("plain", "lookup")}
    for name, count in rows.items():
        print(f"{name:36}{count:10.1f}")
    if args.json:
        save(args.json, {"opcodes": rows})


if __name__ == "__main__":
    main()

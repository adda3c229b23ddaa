"""What a row costs the host: the GPU runtime over a stand-in for the device that answers at once.

    python bench/rows.py [--rows 128,1024,4096] [--tokens 256] [--json FILE]

Microseconds of processor time per row and per 16 tokens of it: through the engine alone, and through `LM.batch` with
text that is decoded. Reading the prompts is told apart. Medians of three runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import process_time

from record import save
from tokenizers import Tokenizer, models

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from standin import standin

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.chance import Philox
from unspool.core.stop import Stop
from unspool.models.vocabulary import Vocabulary
from unspool.rules.decode import plain
from unspool.runtime.engine.engine import Engine

BAR = 30.0  # microseconds per row and 16 tokens
PART = 16
VOCAB = 512
PIECES = [f" w{i}".encode() for i in range(VOCAB)]


def prompts(rows: int) -> list[tuple[int, ...]]:
    """Prompts of 24 tokens, none of which begins like another."""
    return [tuple((row >> 8 * (i % 2)) % 256 + i for i in range(24)) for row in range(rows)]


def through_engine(rows: int, tokens: int) -> float:
    """Seconds for `rows` texts through the engine alone."""
    engine = Engine({"target": standin(VOCAB, rows * (tokens + 100))})
    stop = Stop(frozenset({VOCAB}), most=tokens)
    began = process_time()
    for row, text in enumerate(prompts(rows)):
        engine.submit(plain(), text, Philox(row), stop=stop, laws=False, room=24 + tokens)
    engine.run()
    return process_time() - began


def through_lm(rows: int, tokens: int) -> float:
    """Seconds for `rows` texts through `LM.batch`."""
    vocabulary = Vocabulary(Tokenizer(models.BPE()), PIECES, special=(), eos=())
    lm = LM("stand-in", standin(VOCAB, rows * (tokens + 100)), vocabulary)
    began = process_time()
    outputs = lm.batch(prompts(rows), Settings(max_tokens=tokens, temperature=1.0))
    spent = process_time() - began
    assert all(len(output.tokens) == tokens and output.text for output in outputs)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="128,1024,4096")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    found = {}
    for rows in map(int, args.rows.split(",")):
        for name, run in (("engine", through_engine), ("lm", through_lm)):
            begin = statistics.median(run(rows, 1) for _ in range(3))
            whole = statistics.median(run(rows, args.tokens) for _ in range(3))
            each = (whole - begin) / rows / ((args.tokens - 1) / PART) * 1e6
            found[f"{name} {rows}"] = {"us_per_row_and_16": each, "us_per_prompt": begin / rows * 1e6}
            print(
                f"{rows:5} rows, {name:6}  {each:6.1f} µs per row and {PART} tokens  (bar {BAR:.0f})   "
                f"{begin / rows * 1e6:6.1f} µs per prompt",
                flush=True,
            )
    if args.json:
        save(args.json, {"bar_us": BAR, "rows": found})


if __name__ == "__main__":
    main()

"""Tokens per look on questions with short answers, where holes behind the end must not be paid for.

python bench/short.py                         # the table of docs/denoise.md
python bench/short.py "factor + cached_dual"  # other methods
"""

from __future__ import annotations

import sys

import unspool

QUESTIONS = [
    "What is the capital of France?",
    "What is 2 + 2?",
    "Name a colour.",
    "Is ice cold? Answer yes or no.",
]
METHODS = [
    f"{name}:block={block}" for block in (32, 8) for name in ("confident", "local", "credited", "cycle", "factor")
]


def main() -> None:
    """One line per method: tokens, looks, tokens per look."""
    lm = unspool.load("smollm2-diffusion")
    for method in sys.argv[1:] or METHODS:
        outputs = lm.batch(QUESTIONS, unspool.Settings(max_tokens=32), method)
        tokens, looks = sum(len(each.tokens) for each in outputs), sum(each.trace.rounds for each in outputs)
        print(f"{method:24} {tokens:4} tokens {looks:4} looks {tokens / looks:5.2f} per look", flush=True)


if __name__ == "__main__":
    main()

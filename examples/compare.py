"""Which method pays here: plain decoding and two others on the same prompts, from cold caches."""

import unspool

lm = unspool.load("smollm2")
prompts = ["Repeat word for word: the museum opens at nine, the museum closes at six."]
found = unspool.compare(lm, ["lookup", "suffix"], prompts, max_tokens=32)
for row in found.rows:
    print(f"{row.method:8} {row.speed_up(found.plain):.2f}× {row.total.tokens_per_forward:.2f} tokens per forward")

"""Which method pays here: plain decoding and two others on the same prompts, from cold caches."""

import unspool

lm = unspool.load("smollm2")
prompts = ["Write these as a list, word for word: boil water; add salt; add pasta; stir once; wait; drain; serve."]
found = unspool.compare(lm, ["lookup", "suffix"], prompts, max_tokens=32)
for row in found.rows:
    print(f"{row.method:8} {row.speed_up(found.plain):.2f}× {row.total.tokens_per_forward:.2f} tokens per forward")

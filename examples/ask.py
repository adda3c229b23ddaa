"""A question, and what drafting changed: the text is the same, the forwards are fewer."""

import unspool

lm = unspool.load("smollm2")
question = "Repeat word for word: the museum opens at nine, the museum closes at six."
for method in ("plain", "lookup"):
    output = lm.generate(question, method=method, max_tokens=32)
    print(f"{method}: {output}\n    {output.trace}")

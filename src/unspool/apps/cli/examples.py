"""The prompts of `unspool compare` when none are given: three whose answers copy from them, three that are free."""

from __future__ import annotations

COPYING = (
    "Fix the spelling and repeat the whole text: The museum opens at nine on weekdays and at ten on saturdays. Tickets "
    "are sold at the north entrance. Large bags must be left in the cloak room, wich is free of charge.",
    "Rename the variable `total` to `amount` and print the whole function:\n\n"
    "def invoice(items, rate):\n    total = 0\n    for item in items:\n        total += item.price * item.count\n"
    "    total += total * rate\n    return total\n",
    "Write these as a numbered list, word for word: boil two litres of water; add a spoon of salt; add the pasta; stir "
    "once; wait nine minutes; drain the pasta; serve at once.",
)
FREE = (
    "Why is the sky blue?",
    "Write a short letter to a neighbour who left the gate open.",
    "Name three uses of a paper clip.",
)
PROMPTS = COPYING + FREE

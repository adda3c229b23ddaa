"""Prompts of our own for `unspool bench`, two of each of Spec-Bench's families, for when its data is not at hand."""

from __future__ import annotations

PASSAGE = (
    "The lighthouse at Corran Point was built in 1874 after three ships were lost in one winter. Its lamp burned "
    "rapeseed oil until 1902, when paraffin replaced it, and it was joined to the mains in 1951. The last keeper, "
    "Agnes Muir, left in 1986, and the tower has been unmanned since. Each spring the trust that owns it opens the "
    "stairs to visitors for six weeks; the money pays for the paint, which the sea takes off again every autumn."
)
MINUTES = (
    "Minutes of the garden club, 4 March. Present: Ruth, Omar, Li, Pauline. The water butts will be moved to the south "
    "fence before Easter; Omar will hire a van. The seed order closes on the tenth, and Li collects the money. Ruth "
    "reported that two beds are free and that five people are waiting for one. It was agreed to split both beds in "
    "halves. Pauline asked for a second wheelbarrow; the treasurer will look for a used one. Next meeting: 1 April."
)
BUILT_IN: dict[str, tuple[str, ...]] = {
    "chat": (
        "Write a short blog post about a walk along a canal, mentioning what you saw and what you heard.",
        "Explain to a new colleague how to prepare for a first meeting with a customer.",
    ),
    "translation": (
        "Translate German to English: Der Zug nach Lindau fährt heute von Gleis sieben, zehn Minuten später als sonst.",
        "Translate German to English: Bitte schließen Sie das Fenster, bevor Sie das Haus verlassen.",
    ),
    "summarization": (
        f"Summarize: {PASSAGE}",
        f"Summarize: {MINUTES}",
    ),
    "qa": (
        "What is the difference between weather and climate?",
        "Who decides how long a day is, and why is there a leap year?",
    ),
    "math_reasoning": (
        "A baker makes 12 trays of 15 rolls and sells all but 23 of them. How many rolls did the baker sell?",
        "A bus leaves with 18 people. At the first stop 7 get off and 11 get on, at the second 9 get off. How many are "
        "left?",
    ),
    "rag": (
        f"Answer from the text only.\n\n{PASSAGE}\n\nQuestion: When did the last keeper leave, and who was it?",
        f"Answer from the text only.\n\n{MINUTES}\n\nQuestion: Who hires the van, and by when must seeds be ordered?",
    ),
}
TOWNS = ("Aston", "Brill", "Corby", "Dunmow", "Ely", "Frome", "Goole", "Hythe", "Ilkley", "Jarrow")


def ledger_of(lines: int) -> str:
    """A long text to look something up in: numbered lines that differ in three words."""
    rows = (
        f"Entry {i}: on day {7 * i % 365 + 1} the clerk in {TOWNS[i * i % 10]} counted {37 * i % 900 + 100} parcels."
        for i in range(1, lines + 1)
    )
    wanted = lines * 2 // 3
    return "\n".join(rows) + f"\n\nCopy entries {wanted} to {wanted + 4} word for word."

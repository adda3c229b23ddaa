"""What open chat asks to be written, played, explained and planned, about what other sets name: for asked.py."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

ABOUT = (
    "Write a blog post about {topic}.",
    "Write a short story about {things}.",
    "Write a short story about {things} with a surprising ending.",
    "Write the first paragraph of a novel about {things}.",
    "Write an opening line, and then a scene, about {things}.",
    "Write a poem about {things}.",
    "Write a song about {things}.",
    "Write an email to a colleague about {topic}. Be polite and brief.",
    "Write an email to my manager in which I ask for help with {things}.",
    "Write a formal letter to the editor about {topic}.",
    "Write a product description for something that has to do with {things}.",
    "Write an advertisement for a show about {topic}.",
    "Write a speech of a few paragraphs on {topic} for students.",
    "Write a dialogue between two friends who talk about {topic}.",
    "Write a review of a film about {topic}.",
    "Write a review of a restaurant where there was something with {things}.",
    "Write a news article about {topic}.",
    "Write a diary entry of someone who saw {things}.",
    "Write a comparison of {topic} and {other}.",
    "Write an essay on why {topic} matters today.",
    "Describe {things} as vividly as you can, in two paragraphs.",
    "Describe a character who is known for {things}.",
    "Describe how {topic} and {other} are alike, and how they differ.",
    "Draft a social media post about {topic}.",
    "Draft an outline for a presentation about {topic}.",
    "Explain {topic} to a child.",
    "Explain {topic} in simple words, with an example.",
    "Explain to a beginner what one should know about {topic}.",
    "What do you think about {topic}? Give reasons.",
    "What are the most important facts about {topic}?",
    "What are the advantages and disadvantages of {topic}?",
    "What would happen if there had never been {topic}?",
    "Give me five tips for someone who is new to {topic}.",
    "Give me ten ideas for a party with the theme {topic}.",
    "List five questions that one could ask in an interview about {topic}, and answer them.",
    "Plan a weekend for a family that is interested in {topic}.",
    "Make a lesson plan about {topic} for a class of ten-year-olds.",
    "Imagine a conversation between {topic} and {other}.",
    "I am nervous about {things}. What should I do?",
    "Help me to write a funny caption for a picture with {things}.",
    "Tell me about {topic}.",
    "Tell me a joke about {things}, and explain it.",
)
ROLES = (
    "a doctor",
    "a teacher of history",
    "a detective",
    "a pirate",
    "a robot who wants to be human",
    "a chef",
    "a poet",
    "a lawyer",
    "a travel guide",
    "a gardener",
    "an astronaut",
    "a football coach",
    "a grandmother",
    "an economist",
    "a software engineer",
    "a stand-up comedian",
    "a king of long ago",
    "a scientist",
    "a librarian",
    "a salesperson",
    "a therapist",
    "a journalist",
)
PLAYED = (
    "Imagine that you are {role}. {question}",
    "You are {role}. Someone asks you: {question} Answer as {role} would.",
    "Pretend to be {role} and answer: {question}",
    "Please take the part of {role} in what follows. {question}",
    "Act as {role}. Explain {topic} to me.",
    "As {role}, tell me what you think about {topic}.",
    "How would {role} write about {things}?",
)


def told(
    topics: Sequence[str], things: Sequence[Sequence[str]], questions: Sequence[str], chance: random.Random
) -> Iterator[str]:
    """Tasks about a topic, about some things, or a question that one in a part is asked; nothing if one is missing."""
    for _ in range(len(topics) * len(things) if questions else 0):
        *some, last = chance.choice(things)
        topic, other = chance.choice(topics), chance.choice(topics)
        words = {"topic": topic, "other": other, "things": f"{', '.join(some)} and {last}" if some else last}
        if chance.random() < 0.8:
            yield chance.choice(ABOUT).format(**words)
        else:
            words |= {"role": chance.choice(ROLES), "question": chance.choice(questions)}
            yield chance.choice(PLAYED).format(**words)

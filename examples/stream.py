"""Two texts at a time with asyncio."""

import asyncio

import unspool


async def told(lm: unspool.LM, question: str) -> str:
    """The answer, in capitals as it arrives."""
    return "".join([event.text.upper() async for event in lm.astream(question, max_tokens=12)])


async def main() -> None:
    """Ask twice at the same time."""
    lm = unspool.load("smollm2")
    questions = ("Name a river.", "Name a mountain.")
    for question, answer in zip(questions, await asyncio.gather(*(told(lm, q) for q in questions)), strict=True):
        print(question, answer)


asyncio.run(main())

"""Tasks on short lists: what a prompt looks like, and the law of its answers.

A prompt is (task, arguments…, items…); the answer follows it, and its length is known from the prompt. Those that one
answer fits measure the model alone; all others measure what it costs to fill several places at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from random import Random

from unspool.core.errors import BadRequest

from .alphabet import ITEMS, NUMBER, TASK, VOCAB, spelt
from .oracle import Exact, Oracle, Tokens
from .oracle_chain import Markov
from .oracle_laws import EvenParity, Listed, Shuffled

COLOURS = 3  # items of a chain
WORDS = 2  # of which one is chosen


@dataclass(frozen=True)
class Task:
    """A kind of question: how to draw one about n items, and the law of its answers given the prompt's arguments."""

    name: str
    ask: Callable[[int, Random], Tokens]
    law: Callable[[Tokens], Exact]
    least: int = 2
    most: int = 8

    @property
    def token(self) -> int:
        """The token that a prompt of this task begins with."""
        return TASK + list(TASKS).index(self.name)

    def prompt(self, n: int, random: Random) -> Tokens:
        """A question about n items."""
        if not self.least <= n <= self.most:
            raise BadRequest(f"the task {self.name} cannot have n = {n}; expected {self.least} to {self.most}")
        return (self.token, *self.ask(n, random))


def answers(prompt: Tokens) -> Exact:
    """The law of the answers to a prompt of any task."""
    number = prompt[0] - TASK if prompt else -1
    shown = " ".join(map(spelt, prompt)) or "(empty)"
    if not 0 <= number < len(TASKS):
        raise BadRequest(f"the prompt {shown} does not begin with a task; an oracle has to see all of its prompt")
    try:
        return list(TASKS.values())[number].law(prompt[1:])
    except (IndexError, ValueError, ZeroDivisionError):
        raise BadRequest(f"the prompt {shown} is no whole question; an oracle has to see all of its prompt") from None


def oracle() -> Oracle:
    """The ideal model of all tasks: exact conditionals for every prompt and everything that may stand already."""
    return Oracle(VOCAB, answers)


# ---- questions: different items, with what else the task needs in front of them


def _list(n: int, random: Random) -> Tokens:
    return tuple(random.sample(range(ITEMS), n))


def _new(n: int, random: Random) -> Tokens:
    return _list(n + 1, random)  # the first is the newcomer


def _at(n: int, random: Random) -> Tokens:
    return (NUMBER + random.randrange(n), *_list(n, random))


def _new_at(n: int, random: Random) -> Tokens:
    return (NUMBER + random.randrange(n), *_new(n, random))


def _bits(n: int, random: Random) -> Tokens:
    return (NUMBER + n, *_list(2, random))


def _colours(n: int, random: Random) -> Tokens:
    return (NUMBER + n, *_list(COLOURS, random))


def _words(n: int, random: Random) -> Tokens:
    columns = [_list(WORDS, random) for _ in range(n)]  # words that differ in every place
    return (NUMBER + n, *(column[word] for word in range(WORDS) for column in columns))


# ---- answers


def _uniform(found: Iterable[Tokens]) -> Listed:
    return Listed(VOCAB, dict.fromkeys(found, 1.0))


def _replaced(x: Tokens, at: int, new: int) -> Tokens:
    return (*x[:at], new, *x[at + 1 :])


def _inserted(x: Tokens, at: int, new: int) -> Tokens:
    return (*x[:at], new, *x[at:])


def _removed(x: Tokens, at: int) -> Tokens:
    return x[:at] + x[at + 1 :]


def _split(x: Tokens) -> list[Tokens]:
    size = x[0] - NUMBER
    return [x[i : i + size] for i in range(1, len(x), size)]


def squares(items: Tokens) -> list[Tokens]:
    """All Latin squares on these items, row by row: each item once in every row and every column."""
    return [tuple(items[i] for i in square) for square in _numbered(len(items))]


@cache
def _numbered(n: int) -> list[Tokens]:
    rows = list(permutations(range(n)))

    def grown(above: list[Tokens]) -> list[Tokens]:
        if len(above) == n:
            return [tuple(x for row in above for x in row)]
        free = [row for row in rows if all(x != y for other in above for x, y in zip(row, other, strict=True))]
        return [square for row in free for square in grown([*above, row])]

    return grown([])


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("copy", _list, lambda x: _uniform([x])),
        Task("reverse", _list, lambda x: _uniform([x[::-1]])),
        Task("sort", _list, lambda x: _uniform([tuple(sorted(x))])),
        Task("replace_index", _new_at, lambda x: _uniform([_replaced(x[2:], x[0] - NUMBER, x[1])])),
        Task("insert_index", _new_at, lambda x: _uniform([_inserted(x[2:], x[0] - NUMBER, x[1])])),
        Task("remove_index", _at, lambda x: _uniform([_removed(x[1:], x[0] - NUMBER)])),
        Task("replace_random", _new, lambda x: _uniform(_replaced(x[1:], i, x[0]) for i in range(len(x) - 1))),
        Task("insert_random", _new, lambda x: _uniform(_inserted(x[1:], i, x[0]) for i in range(len(x)))),
        Task("remove_random", _list, lambda x: _uniform(_removed(x, i) for i in range(len(x)))),
        Task("shuffle", _list, lambda x: Shuffled(VOCAB, x)),
        Task("parity", _bits, lambda x: EvenParity(VOCAB, x[0] - NUMBER, x[1], x[2])),
        Task("words", _words, lambda x: _uniform(_split(x))),
        Task("chain", _colours, lambda x: Markov.differing(VOCAB, x[0] - NUMBER, x[1:])),
        Task("latin", _list, lambda x: _uniform(squares(x)), most=4),
    )
}


def task(name: str) -> Task:
    """The task of this name."""
    if name not in TASKS:
        raise BadRequest(f"no task is called {name!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]

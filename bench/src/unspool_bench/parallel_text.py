"""ParallelBench's own questions, in words, for a model that fills holes: the data, the prompts, and what is right.

Lists of names (copied, sorted, changed at a place or anywhere), Latin squares and sudokus, sentences from words, and
paraphrases. The score of an answer is between 0 and 1: 1 or 0 for lists and squares, for a sentence the share of words
that it has, for a paraphrase how many of its words one of the examples has (F1), 0 if it is the sentence itself.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import yaml  # type: ignore[import-untyped]

from unspool.api.lm import LM
from unspool.api.settings import Settings
from unspool.core.errors import BadRequest

FILE = "tasks.jsonl.gz"
GROUPS = ("waiting_line", "puzzle", "words_to_sentence", "paraphrase_summarize")
BEST = "best threshold of each question"


@dataclass(frozen=True)
class Question:
    """A prompt, the messages before it that show how to answer, and what an answer is worth."""

    task: str
    shown: tuple[tuple[str, str], ...]
    prompt: str
    score: Callable[[str], float]

    @property
    def messages(self) -> list[dict[str, str]]:
        """The question as a chat."""
        turns = [(role, text) for asked, told in self.shown for role, text in (("user", asked), ("assistant", told))]
        return [{"role": role, "content": text} for role, text in (*turns, ("user", self.prompt))]

    @property
    def text(self) -> str:
        """The question for a model that has no chats."""
        return "".join(f"{asked}{told}\n\n" for asked, told in self.shown) + self.prompt


def questions(folder: Path, tasks: Sequence[str], limit: int) -> list[Question]:
    """The first questions of every task; all tasks of four groups, if none is named."""
    if not (folder / FILE).is_file():
        raise BadRequest(f"{folder} has no {FILE}; give the folder of ParallelBench's questions.")
    asked = {name: told for group in _configs(folder) for name, told in group.items()}
    found: Counter[str] = Counter()
    chosen: list[Question] = []
    for line in gzip.decompress((folder / FILE).read_bytes()).decode("utf-8").splitlines():
        row = json.loads(line)
        name = row["task"]
        wanted = name in tasks or name.split("/")[-1] in tasks if tasks else _usual(name)
        if wanted and name in asked and found[name] < limit:
            found[name] += 1
            chosen.append(_question(row, str(asked[name]["prompt"])))
    if not chosen:
        raise BadRequest(f"{folder} has no questions of {', '.join(tasks) or 'any task'}; names are like copy.")
    return chosen


def _usual(name: str) -> bool:
    """Without sentences from other numbers of words than the usual one, and without lists of fifteen."""
    group, _, task = name.partition("/")
    return group in GROUPS and not (group == "words_to_sentence" and "_n" in task)


def _configs(folder: Path) -> Iterator[Mapping[str, Any]]:
    for file in sorted(folder.glob("task_config.*.yaml")):
        yield yaml.safe_load(file.read_text("utf-8"))


def _question(row: Mapping[str, Any], template: str) -> Question:
    template = template.replace("\\n", "\n")
    given = {name: value for name, value in row["input"].items() if name != "icl_examples"}
    shown = tuple(
        (template.format(**one["input"]), _example(one["answer"])) for one in row["input"].get("icl_examples", ())
    )
    return Question(row["task"], shown, template.format(**given), _score(row))


def _example(answer: Any) -> str:
    return str(answer["example"] if isinstance(answer, dict) else answer)


def _score(row: Mapping[str, Any]) -> Callable[[str], float]:
    """What tells how good an answer is."""
    group, _, name = row["task"].partition("/")
    answer = row["answer"]
    if group == "words_to_sentence":
        return lambda text: covered(text, answer["words"])
    if group == "paraphrase_summarize":
        return lambda text: alike(text, answer["text"], ast.literal_eval(answer["examples"]))
    if name.startswith("sudoku"):
        return lambda text: float(grid(text, "1234") == grid(answer, "1234"))
    if name.startswith("latin"):
        return lambda text: float(is_latin(text, answer["symbols"]))
    if isinstance(answer, str):
        return lambda text: float(listed(text) == json.loads(answer))
    before, word, kind = answer["input"], answer.get("word", ""), name.split("_")[0]
    return lambda text: float(may_be(listed(text), before, word, kind))


def listed(text: str) -> list[str] | None:
    """The list of names that a text has, None if it has none."""
    found = re.search(r"\[[^\[\]]*\]", text)
    try:
        told = json.loads(found[0]) if found else None
    except ValueError:
        return None
    return told if isinstance(told, list) else None


def may_be(after: list[str] | None, before: list[str], word: str, kind: str) -> bool:
    """Whether a list is one that a random change of another may give."""
    if after is None:
        return False
    if kind == "shuffle":
        return Counter(after) == Counter(before) and after != before
    places = range(len(before) + 1)
    ways = {
        "insert": ([*before[:i], word, *before[i:]] for i in places),
        "remove": ([*before[:i], *before[i + 1 :]] for i in places[:-1]),
        "replace": ([*before[:i], word, *before[i + 1 :]] for i in places[:-1]),
    }
    return after in ways[kind]


def grid(text: str, symbols: Sequence[str]) -> list[str]:
    """The symbols of a grid, row by row, whatever stands between them."""
    return [letter for letter in text if letter in symbols]


def is_latin(text: str, symbols: Sequence[str]) -> bool:
    """Whether every symbol is in every row and every column once."""
    n, told = len(symbols), grid(text, symbols)
    rows = [told[i : i + n] for i in range(0, len(told), n)]
    return len(told) == n * n and all(set(line) == set(symbols) for line in (*rows, *zip(*rows, strict=True)))


def covered(text: str, words: Sequence[str]) -> float:
    """The share of words that a sentence has, in any form that begins with them."""
    said = re.findall(r"\w+", text.lower())
    return mean(any(one.startswith(word.lower()) for one in said) for word in words)


def alike(text: str, given: str, examples: Sequence[str]) -> float:
    """The best F1 of words with an example; 0 for the given sentence."""
    own = Counter(re.findall(r"\w+", text.lower()))
    if own == Counter(re.findall(r"\w+", given.lower())):
        return 0.0
    scores = []
    for example in examples:
        other = Counter(re.findall(r"\w+", example.lower()))
        both = (own & other).total()
        scores.append(2 * both / max(1, own.total() + other.total()))
    return max(scores, default=0.0)


@dataclass
class ScoredAnswer:
    """What a method made of one question."""

    score: float
    tokens: int
    forwards: int


def measured(
    lm: LM, asked: Sequence[Question], methods: Sequence[str], settings: Settings, advance: Callable[[], None]
) -> dict[str, dict[str, dict[str, float]]]:
    """By task and by method: the mean score, tokens per forward and how many questions.

    Of several thresholds of one method a further row has, for each question, the fastest that did best.
    """
    answers: dict[tuple[str, str], list[ScoredAnswer]] = {}
    for question in asked:
        chats = not isinstance(lm.asked(question.prompt), str)
        prompt = lm.encode(question.messages if chats else question.text)
        for method in methods:
            output = lm.generate(prompt, settings, method)
            tokens, forwards = len(output.tokens), output.trace.forwards["target"]
            told = ScoredAnswer(question.score(output.text), tokens, forwards)
            answers.setdefault((question.task, method), []).append(told)
            advance()
    swept = [method for method in methods if "threshold=" in method]
    for task in dict.fromkeys(task for task, _ in answers) if len(swept) > 1 else ():
        tried = zip(*(answers[task, method] for method in swept), strict=True)
        answers[task, BEST] = [max(each, key=lambda one: (one.score, -one.forwards)) for each in tried]
    table: dict[str, dict[str, dict[str, float]]] = {}
    for (task, method), given in answers.items():
        total = sum(one.forwards for one in given)
        table.setdefault(task, {})[method] = {
            "score": round(mean(one.score for one in given), 3),
            "tokens_per_forward": round(sum(one.tokens for one in given) / max(1, total), 3),
            "questions": len(given),
        }
    return table

"""Train the head of `judged`: from the target's state at a drafted token, whether the answer is right with it.

Labels make themselves (as AutoJudge has it, arXiv 2504.20039): the target answers a question greedily. Wherever the
draft model would have said something else, its token takes the place of the target's, and the target finishes the
answer. If this ends in the same number, the token did not matter, and the head learns that it may stand; if not, that
it may not. So "right" means: of one mind with the target about the number. Where the right number is known, questions
that the target gets wrong are left out. The head is w·h + b, which learns by its logistic loss.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings as Asked
from unspool.core.asks import TARGET, Decoding, Done, Score, Scores
from unspool.core.chance import Chance
from unspool.core.errors import BadRequest
from unspool.core.law import chosen
from unspool.core.stop import Stop
from unspool.core.tree import ROOT, Tree
from unspool.core.warp.warp import Warp
from unspool.rules.draft.chain import DRAFT
from unspool.rules.draft.specdecpp import AcceptanceHead
from unspool.rules.verify.judged import STATE

from .command import BASE, setting

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
HELD = 5  # one of so many questions is held out
LEAST = 8  # tokens of an answer in which something is swapped


@dataclass(frozen=True)
class JudgeSettings:
    """For which pair of models, on what, and how."""

    model: str = setting(BASE, "The target: a catalogue name, a .gguf file, or a folder of safetensors.")
    draft: str = setting("", "Its draft model: the same, or layers:N for the first N of the target's layers.")
    questions: str = setting(
        "", "JSON lines with `question` and `answer`, which ends in a number; none: sums of our own."
    )
    out: str = setting("judge.safetensors", "The file to write the head to.")
    count: int = setting(64, "Questions at most.")
    swaps: int = setting(6, "Tokens of an answer that are swapped, each by itself, at most.")
    tokens: int = setting(160, "Tokens of an answer at most.")
    steps: int = setting(400, "Steps of training, over all labels each.")
    rate: float = setting(3e-3, "Learning rate.")
    decay: float = setting(0.1, "Weight decay.")
    seed: int = setting(1, "The seed of questions and of what is swapped.")


class NumberQuestion(NamedTuple):
    """A question, and the number that answers it; None if nobody knows."""

    text: str
    number: str | None


class Labels(NamedTuple):
    """States of a target that has read swapped tokens, whether answers ended in the same number, and whose they are."""

    states: Tensor  # [labels, width]
    right: Tensor
    question: Tensor

    def where(self, rows: Tensor) -> Labels:
        """These labels alone."""
        return Labels(*(part[rows] for part in self))


class TrainedJudge(NamedTuple):
    """A head, and on questions it has not seen: how often it is right, and of each kind of label; and its own share."""

    head: AcceptanceHead
    accuracy: float
    right_stand: float
    wrong_stand: float
    usual: float


def final_number(text: str) -> str | None:
    """The last number of a text, written plainly; None if it has none."""
    found: list[str] = NUMBER.findall(text)
    if not found:
        return None
    plain = found[-1].replace(",", "")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def sums(count: int, seed: int) -> list[NumberQuestion]:
    """Word problems of our own."""
    dice, found = random.Random(seed), list[NumberQuestion]()
    things = ("apples", "books", "coins", "stamps", "marbles", "tickets")
    names = ("Ann", "Ben", "Mia", "Tom", "Eva", "Sam")
    while len(found) < count:
        a, b, c = dice.randrange(3, 30), dice.randrange(2, 20), dice.randrange(2, 6)
        who, what = dice.choice(names), dice.choice(things)
        text, number = dice.choice(
            (
                (f"{who} has {a} {what} and buys {b} more. How many {what} does {who} have now?", a + b),
                (f"{who} has {c} boxes with {a} {what} each. How many {what} are that?", c * a),
                (f"{who} had {a + b} {what} and gave {b} away. How many {what} are left?", a),
            )
        )
        found.append(NumberQuestion(text, str(number)))
    return found


def questions(settings: JudgeSettings) -> list[NumberQuestion]:
    """Those of the file, or our own."""
    if not settings.questions:
        return sums(settings.count, settings.seed)
    rows = map(json.loads, filter(str.strip, Path(settings.questions).read_text("utf-8").split("\n")))
    found = [NumberQuestion(str(row["question"]), final_number(str(row.get("answer", "")))) for row in rows]
    random.Random(settings.seed).shuffle(found)
    return found[: settings.count]


@dataclass(frozen=True)
class ReadingMethod:
    """Read a text with a model: a method that writes nothing, and leaves what it was told in `scores`."""

    text: tuple[int, ...]
    by: str
    scores: list[Scores]

    def __call__(self, text: tuple[int, ...], chance: Chance, warp: Warp, stop: Stop) -> Decoding:
        want = (STATE,) if self.by == TARGET else ()
        told: Scores = yield Score(Tree.chain([chosen(token) for token in self.text]), by=self.by, want=want)
        self.scores.append(told)
        return Done((), "stop", 0)


def read(lm: LM, prompt: Sequence[int], text: Sequence[int], by: str = TARGET) -> Scores:
    """What a model tells of a text after a prompt, read at once."""
    reading = ReadingMethod(tuple(text), by, [])
    lm.generate(tuple(prompt), Asked(max_tokens=1, temperature=0), reading)
    return reading.scores[0]


def labelled(
    lm: LM, asked: Sequence[NumberQuestion], settings: JudgeSettings, final: Callable[[str], str | None]
) -> Labels:
    """Swap tokens of the target's answers for those of the draft model, and see where they end."""
    greedy, dice = Asked(max_tokens=settings.tokens, temperature=0), random.Random(settings.seed)
    prompts = [tuple(lm.encode(lm.asked(question.text))) for question in asked]
    answers = [tuple(output.tokens) for output in lm.batch(prompts, greedy, "plain")]
    swapped, wanted, owner = list[tuple[int, ...]](), list[str](), list[int]()
    for number, (question, prompt, answer) in enumerate(zip(asked, prompts, answers, strict=True)):
        end = final(lm.vocabulary.decode(list(answer)))
        if end is None or len(answer) < LEAST or question.number not in (None, end):
            continue
        said = read(lm, prompt, answer, DRAFT)
        other = [said.law(ROOT if i == 0 else i - 1).best for i in range(len(answer))]
        places = [i for i in range(len(answer) - 1) if other[i] != answer[i]]
        for i in sorted(dice.sample(places, min(len(places), settings.swaps))):
            swapped.append((*prompt, *answer[:i], other[i]))
            wanted.append(end)
            owner.append(number)
    if len(set(owner)) < 2:
        raise BadRequest(
            "a judge needs two questions that the target answers with the right number, and places where the draft "
            "model would have said something else; give more --questions, or another draft model"
        )
    finished = lm.batch(swapped, greedy, "plain")
    states, right = list[Tensor](), list[bool]()
    for text, output, end, number in zip(swapped, finished, wanted, owner, strict=True):
        start = len(prompts[number])
        whole = lm.vocabulary.decode([*text[start:], *output.tokens])
        states.append(read(lm, text[:-1], text[-1:]).hidden[STATE][0].float())
        right.append(final(whole) == end)
    return Labels(torch.stack(states), torch.tensor(right), torch.tensor(owner))


def train(data: Labels, settings: JudgeSettings) -> TrainedJudge:
    """Minimise the logistic loss, both kinds of labels counting alike; one question of five is held out."""
    apart = data.question % HELD == int(data.question[0]) % HELD
    held, seen = data.where(apart), data.where(~apart)
    if not len(seen.right):
        held = seen = data
    head = AcceptanceHead(data.states.shape[1], 0)
    with torch.no_grad():
        head.out.weight.zero_()
        head.out.bias.zero_()
    share = seen.right.float().mean().clamp(1e-3, 1 - 1e-3)
    weight = torch.where(seen.right, 0.5 / share, 0.5 / (1 - share))
    optimiser = torch.optim.AdamW(head.parameters(), lr=settings.rate, weight_decay=settings.decay)
    for _ in range(settings.steps):
        optimiser.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(head(seen.states), seen.right.float(), weight)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        said = head(held.states) > 0
    accuracy, usual = float((said == held.right).float().mean()), float(held.right.float().mean())
    right, wrong = (_share(said[held.right == kind]) for kind in (True, False))
    return TrainedJudge(head.requires_grad_(False).eval(), accuracy, right, wrong, usual)


def _share(said: Tensor) -> float:
    return float(said.float().mean()) if len(said) else 0.0


def judge(settings: JudgeSettings) -> TrainedJudge:
    """Make labels, train, and write the head with what it is worth."""
    if not settings.draft:
        raise BadRequest("name the draft model whose tokens are judged: unspool train judge --draft MODEL")
    data = labelled(load(settings.model, draft=settings.draft), questions(settings), settings, final_number)
    print(f"{len(data.right):,} swapped tokens, {float(data.right.float().mean()):.1%} of which did not matter")
    trained = train(data, settings)
    trained.head.save(settings.out)
    print(
        f"held out: {trained.accuracy:.1%} right, where always saying yes is {trained.usual:.1%}; lets stand "
        f"{trained.right_stand:.1%} of what did not matter and {trained.wrong_stand:.1%} of what did\n"
        f"{settings.out}: use it as chain + judged:head={settings.out}"
    )
    return trained

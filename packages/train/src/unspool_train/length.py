"""Train the head of `specdecpp`: from the states of a draft model, whether the target accepts what it drafted.

Chains of `depth` tokens are drafted and checked as in decoding, so that the head learns from the states that it will
read. Of token i it learns min(1, P/Q), the chance that it is accepted, with the weight Π_{j<i} min(1, P_j/Q_j) that it
is reached at all; what says that it is refused counts `refusals` times, as in the paper (arXiv 2405.19715).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings as Asked
from unspool.core.asks import Score, Scores
from unspool.core.chance import At, Chance, Role
from unspool.core.errors import BadRequest
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.core.warp.warp import Prefix
from unspool.loops.drafter import Draft, Proposing, Source, possible
from unspool.loops.speculate import Speculate
from unspool.rules.draft.chain import DRAFT
from unspool.rules.draft.specdecpp import STATE, AcceptanceHead, states_of
from unspool.rules.verify.rejection import rejection

from .command import BASE, setting

QUESTIONS = (
    "Why is the sky blue?",
    "Explain what a harbour is for.",
    "List five uses of a brick.",
    "Write a short letter to a neighbour about a barking dog.",
    "How do you boil an egg?",
    "What is the difference between a lake and a pond?",
    "Tell a story about a fox and a well in four sentences.",
    "A train leaves at nine and takes 80 minutes. When does it arrive?",
    "Translate German to English: Morgen fahren wir mit dem Rad an den See.",
    "Name three inventions of the nineteenth century and say who made them.",
    "What should one pack for a week in the mountains?",
    "Describe how bread is made.",
    "Which planets have rings?",
    "Write a Python function that reverses a list.",
    "Summarize: The bridge was closed for two years because its bolts had rusted; it opens again in May.",
    "Give advice to somebody who starts a new job.",
)
HELD = 8  # one of so many texts is held out


@dataclass(frozen=True)
class LengthSettings:
    """For which pair of models, on what, and how."""

    model: str = setting(BASE, "The target: a catalogue name, a .gguf file, or a folder of safetensors.")
    draft: str = setting("", "Its draft model: the same, or layers:N for the first N of the target's layers.")
    prompts: str = setting("", "A file with a prompt per line; none: sixteen questions of our own.")
    out: str = setting("length.safetensors", "The file to write the head to.")
    tokens: int = setting(96, "Tokens of an answer at most.")
    depth: int = setting(8, "Drafted tokens of a round.")
    temperature: float = setting(1.0, "Temperature of the answers.")
    blocks: int = setting(3, "Residual layers of the head; 0 is a logistic regression.")
    steps: int = setting(300, "Steps of training, over all tokens each.")
    rate: float = setting(1e-3, "Learning rate.")
    refusals: float = setting(6.0, "How much more a refusal counts than an acceptance.")
    seed: int = setting(1, "The seed of answers and weights.")


class LengthExamples(NamedTuple):
    """States of a draft model that has read a drafted token, the chances that this is accepted, and reached at all.

    `text` numbers the answer that each comes from.
    """

    states: Tensor  # [tokens, width]
    accepted: Tensor
    reached: Tensor
    text: Tensor

    def where(self, rows: Tensor) -> LengthExamples:
        """These tokens alone."""
        return LengthExamples(*(part[rows] for part in self))


class TrainedLength(NamedTuple):
    """A head, and on texts it has not seen: its loss, that of a constant, and how often its better half is accepted."""

    head: AcceptanceHead
    loss: float
    constant: float
    surer: float
    less_sure: float


Note: TypeAlias = tuple[Tensor, float, float, int]


@dataclass
class Observed(Draft):
    """Chains of `depth` drawn tokens, with notes of what became of them."""

    depth: int
    notes: list[Note] = field(default_factory=list)
    texts: int = 0

    def begin(self, prefix: Prefix) -> Source:
        self.texts += 1
        return _Observing(self, prefix, self.texts)


class _Observing(Source):
    def __init__(self, by: Observed, prefix: Prefix, text: int) -> None:
        self.by, self.states, self.prefix, self.text = by, torch.empty(0), prefix, text

    def propose(self, prefix: Prefix, budget: int, chance: Chance) -> Proposing:
        tree, node, start = NOTHING, ROOT, len(prefix)
        self.prefix = prefix
        while True:
            scores: Scores = yield Score(tree, by=DRAFT, want=(STATE,))
            law = possible(prefix, scores.law(node)) if len(tree) < min(self.by.depth, budget) else None
            if law is None:
                self.states = states_of(scores)[: len(tree)].float().clone()
                return tree
            tree, node = tree.grow(law.draw(chance, At(start + len(tree), Role.DRAFT, round=start)), node)
            prefix = prefix.then((tree.drawn[-1].token,))

    def learn(self, prefix: Prefix, tree: Tree, scores: Scores) -> None:
        before, reached = self.prefix, 1.0
        for node, (token, law) in enumerate(tree.drawn):
            target = before.shape(scores.law(node - 1 if node else ROOT))
            accepted = min(1.0, target[token] / law[token])
            self.by.notes.append((self.states[node], accepted, reached, self.text))
            reached *= accepted
            before = before.then((token,))
            if reached == 0:
                break


def observed(lm: LM, prompts: Sequence[str], settings: LengthSettings) -> LengthExamples:
    """What becomes of drafts while a model and its draft model answer these prompts."""
    drafter = Observed(settings.depth)
    asked = Asked(max_tokens=settings.tokens, temperature=settings.temperature, seed=settings.seed)
    encoded = [lm.encode([{"role": "user", "content": text}]) for text in prompts]
    lm.batch(encoded, asked, Speculate(drafter, rejection, budget=settings.depth))
    return collected(drafter.notes)


def collected(notes: Sequence[Note]) -> LengthExamples:
    """Notes as matrices; BadRequest if fewer than two texts have some."""
    if len({text for *_, text in notes}) < 2:
        raise BadRequest("a head needs two answers to learn from and to be judged by; give more prompts or more tokens")
    states, accepted, reached, text = zip(*notes, strict=True)
    return LengthExamples(torch.stack(states), torch.tensor(accepted), torch.tensor(reached), torch.tensor(text))


def train(data: LengthExamples, settings: LengthSettings) -> TrainedLength:
    """Minimise the weighted cross-entropy by AdamW, all tokens in every step; one text of eight is held out."""
    apart = (data.text - data.text.min()) % HELD == 0
    held, seen = data.where(apart), data.where(~apart)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        head = AcceptanceHead(data.states.shape[1], settings.blocks)
    optimiser = torch.optim.AdamW(head.parameters(), lr=settings.rate, weight_decay=0.1)
    for _ in range(settings.steps):
        optimiser.zero_grad()
        _loss(head(seen.states), seen, settings.refusals).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        said = head(held.states)
        weight = settings.refusals
        mean = float((seen.accepted * seen.reached).sum() / seen.reached.sum())
        flat = torch.full_like(said, mean / (mean + weight * (1 - mean))).logit()
        upper = said >= said.median()
        surer, less = (float((held.accepted * held.reached)[part].sum() / held.reached[part].sum().clamp_min(1e-9))
                       for part in (upper, ~upper))  # fmt: skip
        loss, constant = (float(_loss(logits, held, weight)) for logits in (said, flat))
    return TrainedLength(head.requires_grad_(False).eval(), loss, constant, surer, less)


def _loss(logits: Tensor, data: LengthExamples, refusals: float) -> Tensor:
    yes, no = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    each = data.accepted * yes + refusals * (1 - data.accepted) * no
    return -(each * data.reached).sum() / data.reached.sum()


def length(settings: LengthSettings) -> TrainedLength:
    """Observe, train, and write the head with what it is worth."""
    if not settings.draft:
        raise BadRequest("name the draft model that the head is for: unspool train length --draft MODEL")
    lines = Path(settings.prompts).read_text("utf-8").splitlines() if settings.prompts else QUESTIONS
    prompts = [line for line in lines if line.strip()]
    data = observed(load(settings.model, draft=settings.draft), prompts, settings)
    mean = float((data.accepted * data.reached).sum() / data.reached.sum())
    print(f"{len(data.states):,} drafted tokens of {len(prompts)} prompts, {mean:.1%} of those reached accepted")
    trained = train(data, settings)
    trained.head.save(settings.out)
    print(
        f"held out: loss {trained.loss:.3f}, of a constant {trained.constant:.3f}; accepted {trained.surer:.1%} where "
        f"it is surer than usual, {trained.less_sure:.1%} where it is not\n{settings.out}: use it as "
        f"specdecpp:head={settings.out}"
    )
    return trained

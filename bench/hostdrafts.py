"""A trained drafter on a GPU and on a CPU, place by place: hidden states, guesses, and what should stand and stands.

    python bench/hostdrafts.py [--drafters FOLDER …] [--limit 1] [--max-tokens 32] [--data FOLDER] [--json FILE]

The text of each prompt is plain decoding's on the device. Both models read it as a method's rounds do: the prompt
first, then a root and four tokens at a time, all of which are kept; so every state comes from the sort of forward that
leaves it for a drafter. Then, for every place of the answers:

- `states`: how far the device's hidden states are from the CPU's, ‖a − b‖ / ‖b‖: the mean, and the worst place;
- `session`: how often a session that followed those rounds guesses what the drafter guesses from the states at hand;
- `alike`: how often the best guesses one to four tokens ahead are the same on both;
- `right`: how often they are the text's own, given that all before is right;
- `expected`: the tokens per forward of a chain of four along these texts, by those guesses;
- `written`: those of `chain:depth=4` when it writes them.

A fault in how states reach a drafter makes `states` large, `session` small, or `written` less than `expected`. The
numbers of a drafter that knows little of such texts are small, and agree.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from record import save
from spec import DATA, chats
from torch import Tensor

from unspool.api.lm import LM
from unspool.api.loader import load
from unspool.api.settings import Settings
from unspool.api.trained_draft import shipped, trained_for
from unspool.core.law import Law, chosen
from unspool.core.tree import NOTHING, ROOT, Tree
from unspool.runtime.cache.cached_model import CachedModel
from unspool.runtime.drafter.drafter_model import TrainedDrafter
from unspool.runtime.engine.contracts import ScoreRequest, Session

DEPTH = 4
METHOD = f"chain:depth={DEPTH}"
Text = tuple[int, ...]
Guesses = list[int]


class Noted:
    """The hidden states of one text, whoever asks."""

    def __init__(self, states: Tensor) -> None:
        self.all = states

    def states(self, session: Session | None, number: int, text: Sequence[int], first: int) -> Tensor:
        return self.all[first : len(text) - 1]


@dataclass
class Seen:
    """What one device made of a text: its states, the guesses of every place, and those of rounds by their places."""

    states: Tensor
    guesses: list[Guesses]
    rounds: dict[int, Guesses]


def best_of(laws: Sequence[Law]) -> Guesses:
    """The best token of each law, −1 of one that knows nothing."""
    return [-1 if law.is_empty() else law.best for law in laws]


def below(text: Sequence[int], place: int) -> Tree:
    """The text's own tokens from a place on, as a draft that lets a drafter guess one further."""
    return Tree.chain([chosen(token) for token in text[place : place + DEPTH - 1]])


def followed(lm: LM, prompt: Text, text: Text) -> tuple[Tensor, dict[int, Guesses]]:
    """The states of a text that was read round by round, and what the drafter guessed at the beginning of each."""
    model, drafter = lm.model, lm.drafter
    assert isinstance(model, CachedModel)
    assert drafter is not None
    model.forget()
    target, session = model.open(prompt), drafter.open(prompt)
    drafter.follow(session, target)
    found, at, tree = dict[int, Guesses](), len(prompt), NOTHING
    while at < len(text):
        if at > len(prompt):
            (scores,) = drafter.score([ScoreRequest(session, below(text, at))])
            found[at] = best_of([scores.leaf[0], *scores.after])
            tree = Tree.chain([chosen(token) for token in text[at : at + DEPTH]][: len(text) - at - 1])
        model.score([ScoreRequest(target, tree)])
        end = at + len(tree)
        for each in (target, session):
            each.keep(tree, (len(tree) - 1 if len(tree) else ROOT,), (text[end],))
        at = end + 1
    states = model.states(target, 0, text, 0)
    assert states is not None
    session.close()
    target.close()
    return states.clone(), found


def guessed(drafter: TrainedDrafter, states: Tensor, prompt: Text, text: Text) -> Iterator[Guesses]:
    """The guesses before every token of an answer but the first, from these states alone."""
    alone = TrainedDrafter(drafter.network, Noted(states))
    for place in range(len(prompt) + 1, len(text)):
        session = alone.open(text[:place])
        (scores,) = alone.score([ScoreRequest(session, below(text, place))])
        yield best_of([scores.leaf[0], *scores.after])
        session.close()


def seen(lm: LM, prompt: Text, text: Text) -> Seen:
    """Everything that one device makes of a text."""
    states, rounds = followed(lm, prompt, text)
    assert lm.drafter is not None
    return Seen(states.float().cpu(), list(guessed(lm.drafter, states, prompt, text)), rounds)


def expected(text: Text, prompt: Text, guesses: Sequence[Guesses]) -> int:
    """The forwards that a chain along these guesses takes; the first one drafts nothing."""
    at, forwards = len(prompt) + 1, 1
    while at < len(text):
        told = guesses[at - len(prompt) - 1]
        stood = 0
        while stood < min(DEPTH, len(text) - at - 1) and told[stood] == text[at + stood]:
            stood += 1
        at, forwards = at + stood + 1, forwards + 1
    return forwards


def rates(texts: Sequence[Text], prompts: Sequence[Text], all_of: Sequence[Seen]) -> list[float]:
    """How often guesses are right, by depth."""
    right: list[list[bool]] = [[] for _ in range(DEPTH)]
    for text, prompt, each in zip(texts, prompts, all_of, strict=True):
        for place, told in enumerate(each.guesses, len(prompt) + 1):
            for ahead, token in enumerate(told[: len(text) - place]):
                right[ahead].append(token == text[place + ahead])
    return [round(mean(some), 3) if some else 0.0 for some in right]


def per_forward(lm: LM, prompts: Sequence[Text], settings: Settings) -> float:
    """Tokens per forward of the drafter when it writes."""
    tokens, forwards = 0, 0
    for prompt in prompts:
        lm.model.forget()
        output = lm.generate(prompt, settings, METHOD)
        tokens, forwards = tokens + len(output.tokens), forwards + output.trace.forwards["target"]
    return round(tokens / forwards, 3)


def compared(device: LM, host: LM, prompts: Sequence[Text], texts: Sequence[Text], most: int) -> dict[str, Any]:
    """A drafter on both."""
    ours, theirs = ([seen(lm, *each) for each in zip(prompts, texts, strict=True)] for lm in (device, host))
    apart = torch.cat(
        [(a.states - b.states).norm(dim=-1) / b.states.norm(dim=-1) for a, b in zip(ours, theirs, strict=True)]
    )
    alike = [x == y for a, b in zip(ours, theirs, strict=True) for x, y in zip(a.guesses, b.guesses, strict=True)]
    told = [
        guesses == each.guesses[place - len(prompt) - 1]
        for prompt, each in zip(prompts, ours, strict=True)
        for place, guesses in each.rounds.items()
    ]
    tokens = sum(len(text) - len(prompt) for text, prompt in zip(texts, prompts, strict=True))
    settings, found = Settings(max_tokens=most, temperature=0, seed=1), dict[str, Any]()
    for name, lm, all_of in (("device", device, ours), ("cpu", host, theirs)):
        forwards = sum(expected(t, p, e.guesses) for t, p, e in zip(texts, prompts, all_of, strict=True))
        found[name] = {
            "right": rates(texts, prompts, all_of),
            "expected": round(tokens / forwards, 3),
            "written": per_forward(lm, prompts, settings),
        }
    nearness = {"mean": round(float(apart.mean()), 5), "worst": round(float(apart.max()), 5)}
    return {"states": nearness, "session": round(mean(told), 3), "alike": round(mean(alike), 3), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--drafters", nargs="+", default=["eagle3"], help="folders, or the name of one that ships")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="bf16", help="of the device; the CPU computes in float32")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that holds question.jsonl")
    parser.add_argument("--limit", type=int, default=1, help="prompts per family")
    parser.add_argument("--longest", type=int, default=400, help="tokens of a prompt: a CPU takes its time")
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    device, host = load(args.model, device=args.device, dtype=args.dtype), load(args.model, device="cpu", dtype="fp32")
    prompts = [tuple(prompt) for prompt in chats(host, args.data, args.limit) if len(prompt) <= args.longest]
    settings, texts = Settings(max_tokens=args.max_tokens, temperature=0, seed=1), list[Text]()
    for prompt in prompts:
        texts.append((*prompt, *device.generate(prompt, settings, "plain").tokens))
    found: dict[str, Any] = {}
    for name in args.drafters:
        source = shipped(args.model, name)
        both = [replace(lm, drafter=trained_for(lm.model, args.model, source)) for lm in (device, host)]
        found[Path(name).name] = told = compared(*both, prompts, texts, args.max_tokens)
        print(name, told, flush=True)
        if args.json:
            sizes = {"model": args.model, "dtype": args.dtype, "prompts": len(prompts), "max_tokens": args.max_tokens}
            save(args.json, {**sizes, "drafters": found})


if __name__ == "__main__":
    main()

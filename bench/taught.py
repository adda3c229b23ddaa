"""Drafters of every kind, trained for seconds each on texts that the target reads once: the first half of drafters.py.

The texts are documents in the model's own words (--corpus), or its answers to questions of a file (--asked), which it
gives for --speak seconds before anything is trained; --like are documents whose conversations show how one opens.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from unspool.api.loader import load
from unspool.models.shape import Shape
from unspool_train import speak
from unspool_train.chunked_loss import LOSSES
from unspool_train.drafter.course import Course, compiled
from unspool_train.drafter.kinds import KINDS, Asked
from unspool_train.token_corpus import TokenCorpus
from unspool_train.training_network import Frozen

Texts = list[tuple[int, ...]]
Made = tuple[str, Path, dict[str, Any]]
Written = Callable[[], Mapping[str, tuple[Texts, Texts]]]
"""By family, prompts and what plain decoding has written behind them, greedily; asked when it is there."""


def read_by_kinds(target: Shape) -> tuple[int, ...]:
    """The hidden states that kinds read unless told, beside the last."""
    return KINDS["eagle3"].spec(target, Asked(1, (), 1, 0)).states


def over(args: argparse.Namespace) -> bool:
    """Whether no other kind is begun."""
    return bool(0 < args.within < time.monotonic() - args.began)


def documents(args: argparse.Namespace, folder: Path) -> TokenCorpus:
    """What is learnt from."""
    if not args.asked:
        return TokenCorpus.read([Path(args.corpus)])
    out = folder / "answers.npz"
    speak.speak(
        speak.SpeakSettings(
            args.model, args.device, like=args.like, out=str(out), seconds=args.speak, asked=args.asked,
            question=args.question, answer=160, drawn=0.5, room=400_000,
        )
    )  # fmt: skip
    return TokenCorpus.read([out])


def answers(prompts: Sequence[tuple[int, ...]], texts: Sequence[tuple[int, ...]]) -> TokenCorpus:
    """Texts that were written, as documents."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "written.npz"
        pairs = zip(prompts, texts, strict=True)
        speak.save(str(file), [([*prompt, *text], len(prompt), speak.CUT) for prompt, text in pairs])
        return TokenCorpus.read([file])


def measured(course: Course, taught: Any, families: Mapping[str, tuple[Texts, Texts]]) -> dict[str, Any]:
    """What a drafter would accept of what plain decoding has written, by the trainer's own forward: by family."""
    found = {}
    for family, (prompts, texts) in families.items():
        corpus = answers(prompts, texts)
        found[family] = course.measured(taught, corpus, range(len(corpus)))
    return found


def trained(args: argparse.Namespace, out: Path, written: Written, known: Sequence[str]) -> Iterator[Made]:
    """Every kind that is not known, trained on the same states: its name, where it was written, and its figures."""
    names = [name for name in args.kinds or KINDS if name not in known]
    if not names:
        return
    device = args.device if args.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    corpus, frozen = documents(args, out), Frozen.open(args.model, device)
    course = Course(frozen, corpus, read_by_kinds(frozen.shape), args.tokens, args.batches, args.vocabulary, args.exam)
    print(f"{course.tokens:,} tokens were read by {time.monotonic() - args.began:.1f} s", flush=True)
    rules, vocabulary = dict(LOSSES) if args.no_compile else compiled(course), load(args.model, device="cpu").vocabulary
    for name in names:
        if over(args):
            print(f"{name} and those behind it are left out: the time is over", flush=True)
            return
        depth = args.deep.get(name, args.depth)
        try:
            taught = course.teach(KINDS[name], args.long.get(name, args.seconds), depth, rules)
            told = {**taught.figures, "these_texts": measured(course, taught, written())}
        except (RuntimeError, ArithmeticError, LookupError, ValueError) as error:  # memory, mostly; the others go on
            print(f"{name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        shares = " ".join(f"{x:.3f}" for x in told["held_out"]["greedy"]["best"])
        print(f"{name}: {told['parameters']:,} parameters, {told['steps']} steps, {shares}", flush=True)
        yield name, course.write(taught, out / name, args.model, vocabulary), {"depth": depth, **told}

"""Train a drafter for a model: one loop for every kind (kinds.py), over texts in the model's own words.

loss = Σ_s decay^s · KL(the target's law of a token ‖ the drafter's guess, s tokens further ahead), over answers.

Claim: none is needed; drafts are verified, and a bad drafter costs time alone. Cost: one forward of the target and one
of the drafter for each depth; states and laws of the target are computed anew for every batch and never stored.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from unspool.core.errors import BadRequest
from unspool.models.address import path
from unspool.models.drafters.description import DrafterFile, DrafterSpec
from unspool.models.drafters.opening import open_drafter
from unspool.models.weights import open_checkpoint
from unspool.runtime.network.attention import without_plans

from ..adapt import Interrupts, base_name, rate
from ..chunked_loss import LOSSES, Slopes
from ..command import TrainingSettings, command, device_of, setting
from ..rows import PaddedBatch, batches
from ..teacher import Teacher
from ..token_corpus import TokenCorpus
from ..training_network import Frozen
from .acceptance import acceptance
from .adversary import Adversary
from .beginnings import begun
from .checkpoint import Progress, resume, save
from .consistency import Consistent
from .export import LLAMA, export, export_model
from .kinds import KINDS, Asked, DrafterKind, kind_of
from .layers import mixed
from .muon import OPTIMISERS
from .target_outputs import Teaching, TrainableDrafter, draft_vocabulary
from .unroll import Unroll

WARMUP = 50  # steps over which the learning rate rises
WIDEST = 65_536  # of a perceptron
SAID = 25  # steps between lines of the log


@dataclass(frozen=True)
class DrafterSettings(TrainingSettings):
    """Which drafter, on what, for how long."""

    kind: str = setting("eagle3", "One of: " + "; ".join(f"{k.name}, {k.about}" for k in KINDS.values()) + ".")
    out: str = setting("drafter", "The folder to write to.")
    begin: str = setting("", "The folder of a drafter of this kind to go on from; else near the target.")
    minutes: float = setting(20.0, "Wall time for everything; a resumed run goes on counting.")
    depth: int = setting(6, "How many tokens ahead it learns to guess.")
    vocabulary: int = setting(16_384, "Guess only so many tokens, those that answers use most; 0: all of them.")
    renew: bool = setting(False, "With --begin: choose the tokens that are guessed anew, as --vocabulary says.")
    layers: int = setting(0, "Layers of the drafter; of heads, their blocks; 0: the kind's own.")
    hidden: int = setting(0, "Width of its layers' perceptrons, in kinds that have such; 0: the target's.")
    states: str = setting("", "Numbers of the target's hidden states to read, separated by commas [the kind's own].")
    mask: int = setting(0, "The token that stands for unknown ones, in kinds that have masks.")
    lr: float = setting(1e-3, "Peak learning rate.")
    optimiser: str = setting("adamw", "adamw, or muon (matrices move along orthogonal momentum).")
    loss: str = setting("", "kl, or tvd or tvd++: the share of refused drafts, for temperature 1 [the kind's own].")
    decay: float = setting(0.8, "Weight of each depth's loss over that of the one before.")
    tokens: int = setting(32_768, "Tokens of a step, padding included.")
    exam: int = setting(128, "Held-out documents of each sort on which acceptance is measured.")
    exams: int = setting(10, "How often it is measured.")
    examined: str = setting("", "Documents on which it is measured; else --held of the corpus.")
    compile: bool = setting(False, "Compile the target's forward and the losses: slow to start, faster after.")
    resume: bool = setting(False, "Go on from the checkpoint in the folder.")
    int8: bool = setting(False, "Write matrices in 8 bits: half the size, and other engines cannot read it.")
    json: bool = setting(False, "Print lines of JSON, those of the log, instead of text.")

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not self.corpus:
            raise BadRequest("no corpus was given; name .npz files or a folder of them with --corpus.")
        if self.loss and self.loss not in LOSSES:
            raise BadRequest(f"--loss is {self.loss!r}; expected one of {', '.join(LOSSES)}.")
        if self.optimiser not in OPTIMISERS:
            raise BadRequest(f"--optimiser is {self.optimiser!r}; expected one of {', '.join(OPTIMISERS)}.")
        for name in ("depth", "tokens", "exams"):
            if getattr(self, name) < 1:
                raise BadRequest(f"--{name} is {getattr(self, name)}; expected at least 1.")
        if self.layers < 0:
            raise BadRequest(f"--layers is {self.layers}; expected at least 1, or 0 for the kind's own.")
        if not 0 <= self.hidden <= WIDEST:
            raise BadRequest(f"--hidden is {self.hidden}; expected 1 to {WIDEST:,}, or 0 for the target's.")
        if not 0 <= self.held < 1:
            raise BadRequest(f"--held is {self.held}; expected a share of the documents, from 0 to below 1.")

    def asked(self) -> Asked:
        """What the kind is asked for."""
        try:
            states = tuple(int(part) for part in self.states.split(",") if part.strip())
        except ValueError:
            raise BadRequest(f"--states is {self.states!r}; expected numbers such as 2,15,27.") from None
        return Asked(self.layers or kind_of(self.kind).layers, states, self.depth, self.mask, self.hidden)


def learner(
    kind: DrafterKind, file: DrafterFile, teacher: Teacher, depth: int, seed: int
) -> TrainableDrafter | Consistent:
    """What learns: a drafter as its paper has it, or the target itself where that is changed."""
    if kind.change is not None:
        return kind.change(teacher, depth, seed)
    adversary = Adversary(teacher.head.device) if kind.judged else None
    return TrainableDrafter(file, teacher, depth, kind.feature, adversary)


def renewed(
    tensors: Mapping[str, torch.Tensor], ids: torch.Tensor | None, head: torch.Tensor
) -> dict[str, torch.Tensor]:
    """The rows of a drafter's head for these tokens: its own where it has them, the target's where not."""
    if "ids" not in tensors or ids is None:
        raise BadRequest("--renew: this drafter guesses all tokens, or all are asked for; there is nothing to choose.")
    rows = head.clone().to(tensors["head.weight"].dtype)
    rows[tensors["ids"]] = tensors["head.weight"]
    return {"head.weight": rows[ids], "ids": ids}


class DrafterRun:
    """One training: its drafter, its clock and its log."""

    def __init__(self, settings: DrafterSettings) -> None:
        settings.check()
        self.settings, self.began, self.interrupts = settings, time.monotonic(), Interrupts()
        self.device, self.out = device_of(settings.device), Path(settings.out)
        self.kind = kind_of(settings.kind)
        self.corpus = TokenCorpus.read([Path(part) for part in settings.corpus.split(",")])
        self.among, held = self.corpus.split(0.0 if settings.examined else settings.held, settings.seed)
        self.examined = self.corpus
        if settings.examined:
            self.examined = TokenCorpus.read([Path(part) for part in settings.examined.split(",")])
            held, _ = self.examined.split(0.0)
        greedy = self.examined.greedy[held]
        self.held = {"greedy": held[greedy][: settings.exam], "drawn": held[~greedy][: settings.exam]}
        self.frozen = Frozen.open(settings.model, self.device)
        shape = self.frozen.shape
        spec = self.kind.spec(shape, settings.asked())
        if spec.states and (min(spec.states) < 0 or max(spec.states) > shape.layers):
            raise BadRequest(f"--states are {spec.states}; {settings.model} has hidden states 0 to {shape.layers}.")
        if not 0 <= settings.mask < shape.vocab:
            raise BadRequest(f"--mask is {settings.mask}; {settings.model} has tokens 0 to {shape.vocab - 1}.")
        if settings.hidden not in (0, spec.shape.hidden):
            raise BadRequest(f"--hidden is {settings.hidden}; {settings.kind} has no perceptron whose width is free.")
        self.file = self.found(spec) if settings.begin else self.begun(spec)
        self.build(settings.compile)
        self.optimiser = OPTIMISERS[settings.optimiser](self.pupil.tensors)
        self.progress = resume(self.out, self.pupil.tensors, self.optimiser) if settings.resume else Progress()
        self.before = self.progress.seconds
        self.out.mkdir(parents=True, exist_ok=True)

    def begun(self, spec: DrafterSpec) -> DrafterFile:
        """A new drafter of this description, for the tokens that answers use most."""
        return begun(spec, self.frozen, self.known(), self.settings.seed, self.settings.asked().layers)

    def known(self) -> torch.Tensor | None:
        """The tokens that answers use most, as many as are asked for; None for all."""
        count = self.settings.vocabulary if self.kind.cut else 0
        ids = draft_vocabulary(self.corpus, self.among, count, self.frozen.shape.vocab)
        return None if ids is None else ids.to(self.device)

    def found(self, spec: DrafterSpec) -> DrafterFile:
        """The drafter that is gone on from: its sizes, states and tokens are its own, but for tokens chosen anew."""
        file = open_drafter(Path(self.settings.begin).expanduser(), self.frozen.shape)
        if file.spec.kind != spec.kind:
            raise BadRequest(f"--begin: {file.source} is a drafter of the kind {file.spec.kind}, and not {spec.kind}.")
        tensors = {name: tensor.to(self.device) for name, tensor in file.tensors.items()}
        if self.settings.renew:
            tensors |= renewed(tensors, self.known(), self.frozen.head)
        return replace(file, tensors=tensors)

    def build(self, compiled: bool) -> None:
        """Make what computes, compiled or not."""
        teacher = Teacher(self.frozen, compiled)
        self.teaching = Teaching(teacher, self.file.spec.states, self.file.tensors.get("ids"))
        self.pupil = learner(self.kind, self.file, teacher, self.settings.depth, self.settings.seed)
        if compiled and isinstance(self.pupil, TrainableDrafter) and isinstance(self.pupil.forward, Unroll):
            self.pupil.forward.attend = torch.compile(mixed, dynamic=True)
        rule = LOSSES[self.settings.loss or self.kind.loss]
        self.rule: Slopes = torch.compile(rule, dynamic=True) if compiled else rule

    @property
    def seconds(self) -> float:
        """Seconds of this run and of those that it goes on from."""
        return self.before + time.monotonic() - self.began

    @property
    def done(self) -> float:
        """Which share of the time, or of the steps if that is more, is over."""
        share = self.seconds / (self.settings.minutes * 60)
        return max(share, self.progress.steps / self.settings.steps) if self.settings.steps else share

    def say(self, kind: str, **figures: Any) -> None:
        """Write one line to the log, and the same to the terminal."""
        record = {"kind": kind, "seconds": round(self.seconds, 1), **figures}
        with (self.out / "train.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(record) + "\n")
        words = (
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in record.items()
        )
        tqdm.write(json.dumps(record) if self.settings.json else " ".join(words), file=sys.stdout)
        sys.stdout.flush()

    def examine(self) -> dict[str, Any]:
        """Measure acceptance on the texts that were held out."""
        found = {}
        for sort, documents in self.held.items():
            if len(documents):
                asked = self.teaching, self.examined, [int(n) for n in documents]
                found[sort] = (
                    acceptance(self.pupil, *asked)
                    if isinstance(self.pupil, TrainableDrafter)
                    else self.pupil.measure(*asked)
                )
        self.say(
            "exam", step=self.progress.steps, done=round(self.done, 3), **{s: a.record() for s, a in found.items()}
        )
        return {sort: a.record() for sort, a in found.items()}

    def step(self, batch: PaddedBatch) -> tuple[list[float], float]:
        """One step of the optimiser; the distances by depth, and the norm of the slopes."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.settings.lr, self.progress.steps, WARMUP, self.done)
        losses = self.pupil.learn(self.teaching.lesson(batch), self.settings.decay, self.rule)
        if not all(map(math.isfinite, losses)):
            raise FloatingPointError(f"the loss is no number at step {self.progress.steps}; lower --lr.")
        norm = torch.nn.utils.clip_grad_norm_(self.pupil.tensors.values(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.progress.steps += 1
        self.progress.tokens += int(batch.lengths.sum())
        return losses, float(norm)

    def settle(self, batch: PaddedBatch) -> None:
        """Compute one gradient and throw it away; where compiling fails, go on without."""
        try:
            self.pupil.learn(self.teaching.lesson(batch), self.settings.decay, self.rule)
        except Exception as error:  # the compiler raises what it likes
            if not self.settings.compile:
                raise
            self.say("fallback", why=f"{type(error).__name__}: {str(error)[:300]}")
            learned = self.pupil.tensors
            self.build(False)
            self.pupil.tensors = learned
        self.optimiser.zero_grad(set_to_none=True)

    def keep(self) -> None:
        """Write the checkpoint and the drafter as it is."""
        self.progress.seconds = self.seconds
        save(self.out, self.pupil.tensors, self.optimiser, self.progress)
        base, source = base_name(self.settings.model), Path(self.settings.model).expanduser()
        if isinstance(self.pupil, Consistent):
            self.pupil.write(self.out, str(source.absolute()) if source.exists() else base)
            return
        if self.kind.form == LLAMA:
            vocabulary = open_checkpoint(source if source.exists() else path(self.settings.model)).vocabulary()
            export_model(self.out, self.pupil.trained(), self.frozen, vocabulary)
            return
        export(
            self.out,
            self.kind.form,
            self.pupil.trained(),
            self.frozen.shape,
            base,
            self.settings.depth,
            self.settings.int8,
        )


@without_plans()
def drafter(settings: DrafterSettings) -> dict[str, Any]:
    """Train a drafter and write its folder; Ctrl-C ends training and leaves a drafter and a checkpoint."""
    run = DrafterRun(settings)
    rng = np.random.default_rng((settings.seed, run.progress.steps))
    stream = batches(run.corpus, run.among, rng, settings.greedy, settings.tokens, run.device)
    size = sum(tensor.numel() for tensor in run.pupil.tensors.values())
    run.say("start", drafter=run.file.spec.title, parameters=size, device=run.device, documents=len(run.among))
    run.settle(next(stream))
    with run.interrupts:
        train(run, stream)
    found = run.examine()
    run.keep()
    (weights,) = run.out.glob("*.safetensors")
    run.say(
        "end", steps=run.progress.steps, tokens=run.progress.tokens, folder=str(run.out), bytes=weights.stat().st_size
    )
    return {"steps": run.progress.steps, "tokens": run.progress.tokens, "parameters": size, "acceptance": found}


def train(run: DrafterRun, stream: Iterator[PaddedBatch]) -> None:
    """Train until the time is up or all steps are made; measure and keep what there is every now and then."""
    since, tokens, examined = time.monotonic(), run.progress.tokens, run.done
    first = run.progress.steps
    with tqdm(total=100, unit="%", leave=False, disable=run.settings.json or not sys.stderr.isatty()) as bar:
        while not run.interrupts.stopped and run.done < 1:
            losses, norm = run.step(next(stream))
            bar.update(round(100 * run.done, 1) - bar.n)
            bar.set_postfix(loss=f"{losses[0]:.3f}", refresh=False)
            if run.progress.steps == first + 1 or run.progress.steps % SAID == 0:
                now = time.monotonic()
                pace, since = (run.progress.tokens - tokens) / (now - since), now
                tokens = run.progress.tokens
                told = {
                    "loss": [round(loss, 4) for loss in losses],
                    "norm": round(norm, 3),
                    "tokens_per_second": round(pace),
                }
                run.say("step", step=run.progress.steps, done=round(run.done, 3), **told)
            if run.done - examined >= 1 / run.settings.exams:
                examined = run.done
                run.examine()
                run.keep()
                since = time.monotonic()


if __name__ == "__main__":
    sys.exit(command(DrafterSettings, "Train a drafter.", drafter))

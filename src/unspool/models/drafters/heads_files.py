"""Medusa heads and MLP speculators: drafters that have no layers and read one hidden state."""

from __future__ import annotations

import re

from ...core.errors import BadModel
from ..shape import Shape
from .description import DrafterFile, DrafterSpec
from .reading import Named, assembled, bare_shape, fields_of
from .stored_drafter import StoredDrafter

_MOST_HEADS = 64
_BLOCK = re.compile(
    r"(?:medusa_heads\.)?(\d{1,4})\.(\d{1,4})\.linear\.(weight|bias)"
    r"|blocks\.(\d{1,4})\.layers\.(\d{1,4})\.(weight|bias)"
)
_HEAD = re.compile(r"(?:medusa_heads\.)?(\d{1,4})\.(\d{1,4})\.weight|lm_heads\.(\d{1,4})\.weight")


def read_medusa(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """Medusa (2401.10774), in its own names or vLLM's: x + SiLU(A·x + a) a few times, then a head of its own.

    A file without heads uses the target's, as Medusa-1 with a tied head does.
    """
    names: dict[str, str] = {}
    for name in named:
        if found := _BLOCK.fullmatch(name):
            head, block, part = [x for x in found.groups() if x is not None]
            names[f"heads.{head}.{block}.{part}"] = name
        elif found := _HEAD.fullmatch(name):
            names[f"heads.{next(x for x in found.groups() if x is not None)}.out"] = name
    names["ids"] = "token_map"
    heads = {int(name.split(".")[1]) for name in names if name.startswith("heads.")}
    count, blocks = len(heads), len([n for n in names if re.fullmatch(r"heads\.0\.\d+\.weight", n)])
    if not heads or heads != set(range(count)) or count > _MOST_HEADS:
        raise BadModel(
            f"{stored.source}: holds Medusa heads {sorted(heads)[:8]}; expected heads 0 to some number below "
            f"{_MOST_HEADS}, none missing."
        )
    shape, drafted = bare_shape("medusa", target, target.dim), target.vocab
    if "token_map" in named:
        drafted = named.length("token_map")
    own = any(name.endswith(".out") for name in names)
    sizes: dict[str, tuple[int, ...]] = {}
    for head in range(count):
        for block in range(blocks):
            sizes[f"heads.{head}.{block}.weight"] = (target.dim, target.dim)
            if f"heads.{head}.{block}.bias" in names:
                sizes[f"heads.{head}.{block}.bias"] = (target.dim,)
        if own:
            sizes[f"heads.{head}.out"] = (drafted, target.dim)
    spec = DrafterSpec("Medusa", (target.layers,), shape, "heads", target.dim, depth=count)
    return assembled(spec, named, names, target, sizes)


def read_mlp_speculator(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """The MLP speculator (2404.19124): a state that takes in one token a step, by small matrices.

    s ← GELU(ln_k(P_k·s + w·E_k[x])), logits = H_k·s, with w = √((1 − a²)·inner/2)/a and a = 2^(−1/(2·steps)).
    """
    fields, source = fields_of(stored), stored.source
    wide, inner = fields.whole("emb_dim", target.dim), fields.whole("inner_dim", target.dim)
    steps = fields.whole("n_predict", 3)
    if wide != target.dim:
        raise BadModel(f"{source}: reads hidden states {wide} wide (emb_dim), and the target's are {target.dim}.")
    if steps > _MOST_HEADS:
        raise BadModel(f"{source}: n_predict is {steps}; expected at most {_MOST_HEADS}.")
    if (told := fields.whole("vocab_size", target.vocab)) != target.vocab:
        raise BadModel(f"{source}: was trained for a vocabulary of {told} tokens, and the target has {target.vocab}.")
    names, sizes = dict[str, str](), dict[str, tuple[int, ...]]()
    for step in range(steps):
        for ours, part, size in (
            ("embed", "emb.{}.weight", (target.vocab, inner)),
            ("proj", "proj.{}.weight", (inner, wide if step == 0 else inner)),
            ("out", "head.{}.weight", (target.vocab, inner)),
            ("norm", "ln.{}.weight", (inner,)),
            ("shift", "ln.{}.bias", (inner,)),
        ):
            names[f"steps.{step}.{ours}"] = _tied(named, part, step, ours == "proj")
            sizes[f"steps.{step}.{ours}"] = size
    shape = bare_shape("mlp_speculator", target, inner)
    scaled = fields.flag("scale_input")
    spec = DrafterSpec("MLP speculator", (target.layers,), shape, "recurrent", wide, depth=steps, scale_input=scaled)
    return assembled(spec, named, names, target, sizes)


def _tied(named: Named, part: str, step: int, projection: bool) -> str:
    """The name of a step's tensor; where steps share one, it is stored under the first number that has it."""
    for number in (step, 1 if projection and step else 0):
        for name in (f"speculator.{part.format(number)}", part.format(number)):
            if name in named:
                return name
    return f"speculator.{part.format(step)}"

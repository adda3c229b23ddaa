"""The kinds of drafters that can be trained: each a description of a network, and what its paper's loss has besides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from unspool.core.errors import BadModel, BadRequest
from unspool.models.drafters.description import DrafterSpec
from unspool.models.drafters.forms import FORMS, MODEL_TYPE
from unspool.models.drafters.reading import bare_shape
from unspool.models.shape import Shape

from ..teacher import Teacher
from .consistency import Consistent
from .export import DELTA, LLAMA
from .packed_masks import PackedMasks
from .transferred import Transferred


@dataclass(frozen=True)
class Asked:
    """What is asked of a drafter: how many layers, which states it reads (none: the kind's own), how far it guesses.

    `hidden` is the width of its layers' perceptrons, 0 for the target's.
    """

    layers: int
    states: tuple[int, ...]
    depth: int
    mask: int
    hidden: int = 0


@dataclass(frozen=True)
class DrafterKind:
    """A kind: its name, what its papers call it, what it is in a line, and its description for a target.

    `layers` are those that it has unless told (of heads, their blocks); `feature` is the weight of the distance of what
    its head reads from what the target's does, beside that of laws; `judged` has KOALA's adversary listened to.
    """

    name: str
    title: str
    about: str
    spec: Callable[[Shape, Asked], DrafterSpec]
    form: str  # what its folder says it is
    cut: bool = True  # whether it may guess fewer tokens than the target has
    layers: int = 1
    feature: float = 0.0
    judged: bool = False
    loss: str = "kl"  # unless told
    change: Callable[[Teacher, int, int], Consistent] | None = None  # of the target itself, for blocks, from a seed


def eagle3(target: Shape, asked: Asked) -> DrafterSpec:
    """Three states fused, and one layer that attends with them and the next token side by side; own states recycled."""
    last = target.layers
    own = (2, last // 2, last - 3) if last > 7 else tuple(sorted({last // 4, last // 2, last - 1}))
    states = asked.states or own
    return DrafterSpec("EAGLE-3", states, _layers(target, asked), "attend", target.dim)


def eagle31(target: Shape, asked: Asked) -> DrafterSpec:
    """EAGLE-3 with a norm for each state, and its own states recycled behind the last norm."""
    return replace(eagle3(target, asked), kind="EAGLE-3.1", recycles_normed=True)


def peagle(target: Shape, asked: Asked) -> DrafterSpec:
    """EAGLE-3 that guesses a block in one forward: a mask with a learned state stands for what is not known."""
    return replace(eagle3(target, asked), kind="P-EAGLE", block=asked.depth, mask=asked.mask)


def eagle1(target: Shape, asked: Asked) -> DrafterSpec:
    """EAGLE-1's and EAGLE-2's layer: no norm at its entry and none at its end, features regressed."""
    return replace(mtp(target, asked), kind="EAGLE-1/2", recycles_normed=False, entry_norm=False)


def mtp(target: Shape, asked: Asked) -> DrafterSpec:
    """A matrix joins the last state and the next token for one plain layer (DeepSeek's module)."""
    layers = _layers(target, replace(asked, layers=1))
    return DrafterSpec("MTP", (target.layers,), layers, "project", target.dim, recycles_normed=True)


def dflash(target: Shape, asked: Asked) -> DrafterSpec:
    """Layers of Qwen3's kind; states are keys and values, and a block of masks behind the last token is filled."""
    states = asked.states or eagle3(target, asked).states
    shape, block = replace(_layers(target, asked), family="qwen3", qk_norm=True), asked.depth + 1
    context = DrafterSpec("DFlash", states, shape, "context", target.dim, block=block, mask=asked.mask, anchored=False)
    return replace(context, depth=asked.depth, causal_windows=True)


def jetspec(target: Shape, asked: Asked) -> DrafterSpec:
    """DFlash whose places see only those before them, so that a tree of them is one law (JetSpec's causal head)."""
    return replace(dflash(target, asked), kind="JetSpec", causal=True)


def dspark(target: Shape, asked: Asked) -> DrafterSpec:
    """DFlash whose every place is told of the token before it by a small matrix, and whose first place guesses too."""
    spec = dflash(target, asked)
    return replace(spec, kind="DSpark", block=asked.depth, anchored=True, markov="vanilla")


def dflash2(target: Shape, asked: Asked) -> DrafterSpec:
    """DFlash with convolutions over its places, and a lattice of the likeliest tokens between neighbouring ones."""
    each = next(size for size in (16, 8, 4, 2, 1) if target.dim % size == 0)
    return replace(dflash(target, asked), kind="DFlash2", lattice=16, taps=2, groups=target.dim // each)


def medusa(target: Shape, asked: Asked) -> DrafterSpec:
    """One head for each token ahead, a residual block or more on the last state, read by the target's head."""
    return DrafterSpec("Medusa", (target.layers,), _bare("medusa", target), "heads", target.dim, depth=asked.depth)


def mlp_speculator(target: Shape, asked: Asked) -> DrafterSpec:
    """A state that takes in one token a step; all steps share embeddings, a head and all matrices but the first."""
    bare = _bare("mlp_speculator", target)
    return DrafterSpec("MLP speculator", (target.layers,), bare, "recurrent", target.dim, depth=asked.depth)


def small(target: Shape, asked: Asked) -> DrafterSpec:
    """A whole model of few layers, which begin as some of the target's, evenly spread, with its embeddings and head."""
    return DrafterSpec("small model", (), replace(_layers(target, asked), tied=target.tied), "alone", target.dim)


def changed(title: str, target: Shape, asked: Asked) -> DrafterSpec:
    """The target itself, changed; `depth` is how long blocks are, or how many masks stand side by side."""
    return DrafterSpec(title, (), target, "alone", target.dim, block=asked.depth)


def formed(name: str) -> Callable[[Shape, Asked], DrafterSpec]:
    """The description of a system in unspool's own form."""

    def spec(target: Shape, asked: Asked) -> DrafterSpec:
        try:
            return FORMS[name].spec(target, asked.layers, asked.depth, asked.mask)
        except BadModel as error:
            raise BadRequest(f"--layers: {error}") from error

    return spec


def _form(name: str, about: str, feature: float = 0.0) -> DrafterKind:
    form = FORMS[name]
    return DrafterKind(
        name, form.title, about, formed(name), MODEL_TYPE, cut=False, layers=form.layers or 1, feature=feature
    )


def _change(name: str, title: str, about: str, change: Callable[[Teacher, int, int], Consistent]) -> DrafterKind:
    return DrafterKind(name, title, about, partial(changed, title), DELTA, cut=False, change=change)


KINDS: Mapping[str, DrafterKind] = {
    kind.name: kind
    for kind in (
        DrafterKind("eagle3", "EAGLE-3", "three states, one layer, own states recycled", eagle3, "eagle3"),
        DrafterKind("eagle3.1", "EAGLE-3.1", "EAGLE-3 with normed states", eagle31, "eagle3"),
        DrafterKind(
            "eagle1",
            "EAGLE-1/2",
            "the last state regressed (EAGLE-2: the same, with likeliest)",
            eagle1,
            "eagle",
            cut=False,
            feature=1.0,
        ),
        DrafterKind("peagle", "P-EAGLE", "EAGLE-3 with masks: all tokens ahead in one forward", peagle, "peagle"),
        DrafterKind("mtp", "MTP", "the last state and the next token joined, as DeepSeek's", mtp, "mtp", cut=False),
        DrafterKind("dflash", "DFlash", "a block of masks that sees the states", dflash, "dflash", layers=3),
        DrafterKind(
            "jetspec", "JetSpec", "DFlash whose places see only those before them", jetspec, "dflash", layers=3
        ),
        DrafterKind("dflash2", "DFlash2", "DFlash with convolutions and a lattice", dflash2, "dflash2", layers=3),
        DrafterKind(
            "dspark", "DSpark", "DFlash that is told of the token before each place", dspark, "dspark", layers=3
        ),
        DrafterKind("medusa", "Medusa", "a head for each token ahead, on the last state", medusa, "medusa", cut=False),
        DrafterKind(
            "koala",
            "KOALA",
            "Medusa's heads with two blocks, judged by an adversary",
            medusa,
            "medusa",
            cut=False,
            layers=2,
            judged=True,
        ),
        DrafterKind(
            "mlp", "MLP speculator", "heads that take in a token a step", mlp_speculator, "mlp_speculator", cut=False
        ),
        _form("bpd", "a perceptron for each token ahead (blockwise parallel decoding)"),
        _form("hydra", "heads that know all tokens before them"),
        _form("hydra++", "Hydra with a layer over the states, and deeper heads"),
        _form("chimera", "a layer over the states, asked by what the last three tokens make"),
        _form("clover", "a layer over the states, and one token a head by regressive attention"),
        _form("clover2", "Clover whose layers have met the next token", 10.0),
        _form("amphista", "heads that see each other, over two layers"),
        _form("flash", "several tokens from one layer (FLASH's head, text only)", 1.0),
        _form("falcon", "the same behind an LSTM", 1.0),
        _form("jakiro", "two experts; their difference guesses one token further", 1.0),
        _form("dream", "a gated look at the target's states between two layers (DREAM, text only)", 0.2),
        _form("recyclegpt", "six layers over the last state and the next token"),
        _form("llm-to-slm", "a small model told of the target's states"),
        _form("specdec", "a small model that fills a block of masks"),
        DrafterKind(
            "small",
            "small model",
            "few layers between the target's embeddings and head",
            small,
            LLAMA,
            cut=False,
            layers=4,
        ),
        DrafterKind(
            "tvd++",
            "direct alignment",
            "small, by the share of refused drafts itself",
            small,
            LLAMA,
            cut=False,
            layers=4,
            loss="tvd++",
        ),
        _change("cllm", "CLLM", "the model itself, for Jacobi decoding (blocks of --depth)", Consistent),
        _change("ppd", "PPD", "what a mask shows, and nothing else; for masks", partial(PackedMasks, factors=False)),
        _change("hidden-transfer", "Hidden Transfer", "masks that are handed states; for masks", Transferred),
        _change(
            "space", "SPACE", "masks, and the model a little (LUD too); for masks", partial(PackedMasks, factors=True)
        ),
    )
}


def kind_of(name: str) -> DrafterKind:
    """The kind of this name."""
    if name not in KINDS:
        raise BadRequest(f"--kind is {name!r}; expected one of {', '.join(KINDS)}.")
    return KINDS[name]


def _layers(target: Shape, asked: Asked) -> Shape:
    hidden = asked.hidden or target.hidden
    return replace(target, layers=asked.layers, windows=(None,) * asked.layers, tied=False, hidden=hidden)


def _bare(family: str, target: Shape) -> Shape:
    return bare_shape(family, target, target.dim)

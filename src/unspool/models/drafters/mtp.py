"""Multi-token prediction modules: layers that were trained with the model, inside its checkpoint or beside it."""

from __future__ import annotations

from typing import NamedTuple

from ...core.errors import BadModel
from ..shape import Shape
from .description import DrafterFile, DrafterSpec
from .family_module import family_names, family_shape, holds
from .reading import OWN, Named, assembled, fields_of, layer_shape
from .stored_drafter import StoredDrafter


class _Layout(NamedTuple):
    """How a family calls the parts of its first module."""

    layer: str
    embed_norm: str
    state_norm: str
    join: str
    norm: str
    head: str = ""
    embed: str = ""
    embedding_first: bool = True
    offset: float = 0.0  # what is added to the factors of norms as they are stored


def layout_of(named: Named, layers: int, theirs: bool = False) -> _Layout | None:
    """The layout of the modules in a file, if it has some: DeepSeek's and GLM's, Qwen's, or MiMo's.

    Files of `speculators` have MiMo's names and the embedding first.
    """
    deep = f"layers.{layers}."
    if f"{deep}eh_proj.weight" in named:
        head, embed = f"{deep}shared_head.head.weight", f"{deep}embed_tokens.weight"
        parts = f"{deep}enorm.weight", f"{deep}hnorm.weight", f"{deep}eh_proj.weight", f"{deep}shared_head.norm.weight"
        return _Layout(deep, *parts, head, embed)
    if "mtp.fc.weight" in named:
        parts = "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.fc.weight", "mtp.norm.weight"
        return _Layout("mtp.layers.0.", *parts, offset=1.0)
    if "mtp_layers.0.input_proj.weight" in named:
        at = "mtp_layers.0."
        norms = f"{at}token_layernorm.weight", f"{at}hidden_layernorm.weight"
        return _Layout(at, *norms, f"{at}input_proj.weight", f"{at}final_layernorm.weight", embedding_first=theirs)
    return None


def read_mtp(stored: StoredDrafter, named: Named, target: Shape) -> DrafterFile:
    """The first module of DeepSeek's, GLM's, Qwen's or MiMo's kind, which drafts every token after the next.

    M·[norm(e); norm(h)] goes through one layer, plain or as the target has them, and a norm to the head; what leaves
    the norm is read with the next token. h has left the target's last norm. MiMo has the state first. Later modules
    are left alone.
    """
    fields, source = fields_of(stored), stored.source
    theirs = fields.text("speculators_model_type", "") == "mtp"
    config = dict(fields_of(stored, "transformer_layer_config").values) if theirs else dict(stored.config)
    if theirs:
        config.setdefault("model_type", "qwen3")
    found = layout_of(named, target.layers, theirs)
    if found is None:
        raise BadModel(
            f"{source}: holds no module that predicts several tokens (no eh_proj behind the last layer, no mtp.fc, no "
            "mtp_layers.0.input_proj). Name a drafter's own folder with --draft, or another method."
        )
    family = None if theirs else family_shape(target)
    theirs_of = {} if family is None else family_names(family, found.layer)
    if family is None or not holds(named, theirs_of):
        config.update(num_hidden_layers=1, layer_types=None)
        family, theirs_of = layer_shape(config, source, named, target, found.layer), {}
    spec = DrafterSpec(
        "MTP",
        (target.layers,),
        family,
        "project",
        target.dim,
        embedding_first=found.embedding_first,
        recycles_normed=True,
    )
    names = {name: f"{found.layer}{name.removeprefix('layers.0.')}" for name in _layer_names(spec)} | theirs_of
    names |= {
        "embed_norm.weight": found.embed_norm,
        "state_norm.weight": found.state_norm,
        "join.weight": found.join,
        "norm.weight": found.norm,
        "head.weight": found.head or OWN["head.weight"] * theirs,
        "embed.weight": found.embed or OWN["embed.weight"] * theirs,
    }
    dim = (target.dim,)
    file = assembled(
        spec, named, names, target, {f"{n}_norm.weight": dim for n in ("embed", "state")} | {"norm.weight": dim}
    )
    if not found.offset:
        return file
    plain = {n: t.float() + found.offset if "norm" in n else t for n, t in file.tensors.items()}
    return DrafterFile(file.spec, plain, file.source)


def _layer_names(spec: DrafterSpec) -> list[str]:
    return [f"layers.0.{name}" for name in spec.shape.layer_tensors(0)]

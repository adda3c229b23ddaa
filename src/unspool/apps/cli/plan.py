"""`unspool plan`: what a model will need, before it is loaded."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ... import api, models, runtime
from ...core.errors import BadModel, BadRequest, NotNative
from ...models.catalog import CATALOG
from . import catalogue
from .root import starting
from .terminal import dump, size, write

if TYPE_CHECKING:
    from ...api.memory_plan import MemoryPlan
    from ...models.weights import Checkpoint

COLUMNS = 80
_COMPARED = ("per_token", "weights", "kv", "total", "fits")


@click.command(short_help="Say how much memory a model needs, before it is loaded.")
@click.argument("model", default="smollm2")
@click.option("--draft", metavar="MODEL", help="A second model that is loaded beside it.")
@click.option("--heads", metavar="FILE", help="Heads that look ahead, loaded beside it.")
@click.option("--context", type=int, metavar="N", help="Tokens per text; by default all that the model reads.")
@click.option("--rows", type=int, default=1, show_default=True, metavar="B", help="Texts at a time.")
@click.option("--tree", type=int, default=64, show_default=True, metavar="T", help="Drafted tokens per round and text.")
@click.option("--dtype", default="auto", help="fp32, bf16, fp16; auto: fp32 on a CPU, bf16 on a GPU; fast: timed.")
@click.option("--quantization", default="auto", show_default=True, help="none, packed, int8 or int4; auto: as loaded.")
@click.option("--ranks", type=int, default=1, show_default=True, metavar="N", help="Processes that share MODEL.")
@click.option("--device", default="auto", help="cpu, cuda or cuda:N; auto takes a GPU if there is one.")
@click.option("--pull", is_flag=True, help="Fetch catalogue models that are not here yet.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def plan(
    model: str,
    draft: str | None,
    heads: str | None,
    context: int | None,
    rows: int,
    tree: int,
    dtype: str,
    quantization: str,
    ranks: int,
    device: str,
    pull: bool,
    as_json: bool,
) -> None:
    """Say how much memory MODEL needs for its weights, cache and drafts, and whether that fits.

    Only the head of the file is read. The exit status is 0 whether it fits or not; ask --json for "fits".
    """
    with starting():
        planned = api.memory_plan.plan
    place = api.loader.device_of(device)
    kind = api.loader.dtype_of(dtype, place)
    names = [model] if draft is None else [model, draft]
    whole = _opened(_path(model, pull))
    kept = partial(runtime.cpu.packed.resolved, quantization, dtype, place, ranks)
    plans = [planned(whole, kind, context, rows, tree, place, kept(whole), ranks)]
    if draft is not None and api.self_draft.is_shortcut(draft):
        some = whole.shape.part(api.self_draft.layers_of(draft, whole.shape.layers))
        plans.append(replace(planned(some, kind, context, rows, tree, place), weights=0))  # which it shares
    elif draft is not None and api.trained_draft.is_trained(named := api.trained_draft.shipped(model, draft)):
        file = api.trained_draft.opened(model, named, whole.shape)
        plans.append(api.memory_plan.drafter_plan(file, plans[0], whole.shape, kind))
    elif draft is not None:  # it is on the first rank alone
        other_name, _, _ = api.draft_models.in_precision(draft)  # in a smaller precision it needs less than is said
        other = _opened(_path(model if other_name == api.draft_models.SELF else other_name, pull))
        plans.append(planned(other, kind, context, rows, tree, place, kept(other)))
    if heads is not None:
        more = runtime.network.lookahead_heads.heads_bytes(Path(heads).expanduser(), kind)
        plans[0] = replace(plans[0], weights=plans[0].weights + more)
    together = _together(names, plans)
    choices = api.memory_plan.choices(whole, context, rows, tree, place) if ranks == 1 else {}
    if as_json:
        ways = {name: {part: getattr(found, part) for part in _COMPARED} for name, found in choices.items()}
        dump({"model": model, **(together or _record(plans[0])), "choices": ways})
        return
    for name, found in zip(names, plans, strict=True):
        head, *rest = f"{name}: {found.table()}".splitlines()
        write("\n".join([*textwrap.wrap(head, COLUMNS, subsequent_indent="  "), *rest]) + "\n")
    for name, found in choices.items():
        read = f"{found.per_token / 1e6:>9,.1f} MB a token," if found.per_token else ""
        write(f"  as {name:<10}{read}{found.weights / 1e6:>9,.1f} MB of weights,{found.total / 1e6:>9,.1f} MB in all\n")
    if together:
        fits = {True: "They fit together.", False: "They do not fit together.", None: ""}[together["fits"]]
        write(f"all models together: {size(together['total'])}. {fits}\n")


def _opened(file: Path) -> Checkpoint:
    try:
        return models.weights.open_checkpoint(file)
    except NotNative as why:
        parts = [*file.glob("*.safetensors"), *file.glob("*.bin")] if file.is_dir() else [file]
        weights = size(sum(part.stat().st_size for part in parts))
        raise BadModel(
            f"{why.problem}, which the native runtime does not do, and `unspool plan` knows what that one needs. "
            f"Its weights alone are {weights} as they are stored."
        ) from None


def _path(name: str, pull: bool) -> Any:
    """The model's file; catalogue models that are not here are fetched only if the user said so."""
    listing = CATALOG.get(name)
    if listing is not None and not pull and not catalogue.fetched(listing):
        raise BadRequest(
            f"{name} is not here yet: {size(listing.download)} to download, {size(listing.bytes)} on disk. "
            f"Fetch it with `unspool pull {name}`, or add --pull."
        )
    return models.address.path(name)


def _record(found: MemoryPlan) -> dict[str, Any]:
    return {
        "note": found.note,
        "device": found.device,
        "weights": found.weights,
        "per_token": found.per_token,
        "kv": found.kv,
        "logits": found.logits,
        "activations": found.activations,
        "tables": found.tables,
        "total": found.total,
        "available": found.available,
        "fits": found.fits,
    }


def _together(names: list[str], plans: list[MemoryPlan]) -> dict[str, Any]:
    """The sum over a model and its draft; nothing for one model alone."""
    if len(plans) == 1:
        return {}
    total, free = sum(found.total for found in plans), plans[0].available
    parts = [{"model": name, **_record(found)} for name, found in zip(names, plans, strict=True)]
    return {"models": parts, "total": total, "available": free, "fits": None if free is None else total <= free}

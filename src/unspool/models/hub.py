"""Models of the Hugging Face Hub, by its own library: downloads that continue, revisions, tokens, mirrors, the cache.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` mean what they mean there. Code of a model is not downloaded.
The models of the catalogue do not come from here: see `fetch.py`. That library takes a while to import, so whoever may
need this module takes it from the package, `models.hub`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

from ..core.errors import BadModel, FetchFailed
from .address import offline

PATIENCE = 5.0  # seconds to wait for a first answer of the Hub
SETTINGS = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
LISTED = 12  # files that an error names
_PIECE = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
ELSEWHERE = ["*/*", "consolidated*"]  # the same weights for other programs


def snapshot(address: str) -> Path:
    """The folder of a model, or its .gguf file if a tag names one: brought here, or as it was if the Hub is away.

    An address is org/name, org/name@revision, org/name:TAG or org/name:TAG@revision, where TAG is a part of a file's
    name, such as Q4_K_M.
    """
    named, _, revision = address.partition("@")
    name, _, tag = named.partition(":")
    why, names = "UNSPOOL_OFFLINE is set", list[str]()
    if not offline():
        why, names = _asked(name, revision or None)
    if tag:
        return _tagged(name, tag, revision or None, why or None, names)
    folder = _brought(name, revision or None, "*.safetensors", why or None)
    if any(folder.glob("*.safetensors")):
        return folder
    if files := _whole(names):
        listed = ", ".join(files[:LISTED]) + (", …" if len(files) > LISTED else "")
        raise BadModel(
            f"{name!r}: has .gguf files and no safetensors. Name one by a part of its name, as in "
            f"{name}:Q4_K_M; there are: {listed}"
        )
    return _brought(name, revision or None, "*.bin", why or None)  # an older model, which only transformers reads


def _whole(names: Sequence[str]) -> list[str]:
    """The weights among some files in GGUF: not what goes with them for images, nor what leads out of the folder."""
    found = [name for name in names if name.endswith(".gguf") and "mmproj" not in name.lower()]
    return sorted(name for name in found if not name.startswith(("/", "\\")) and ".." not in name)


def chosen(names: Sequence[str], tag: str, address: str) -> str:
    """The one .gguf file whose name has the tag as a part of its own, in capitals or not."""
    files = _whole(names)
    part = re.compile(rf"(?:^|[-._/]){re.escape(tag)}(?:[-./]|$)", re.IGNORECASE)
    found = [name for name in files if part.search(name.removesuffix(".gguf"))]
    if len(found) == 1 and not _PIECE.search(found[0]):
        return found[0]
    listed = ", ".join((found or files)[:LISTED]) or "none"
    if found and all(map(_PIECE.search, found)):
        raise BadModel(
            f"{address}: that file is in {len(found)} pieces, which is not read here. Choose another, or "
            "join them with llama.cpp's gguf-split."
        )
    what = (
        f"{len(found)} .gguf files have {tag!r} in their names" if found else f"no .gguf file has {tag!r} in its name"
    )
    raise BadModel(f"{address}: {what}. There are: {listed}")


def _tagged(name: str, tag: str, revision: str | None, why: str | None, names: list[str]) -> Path:
    """The .gguf file of a model that a tag names."""
    if why is not None:
        folder = _brought(name, revision, "*.gguf", why, here="**/*.gguf")
        names = [str(file.relative_to(folder)) for file in folder.rglob("*.gguf")]
    file = chosen(names, tag, f"{name}:{tag}")
    try:
        return Path(hf_hub_download(name, file, revision=revision, local_files_only=why is not None))
    except Exception as error:
        raise FetchFailed(
            f"{name!r}: the download of {file} broke off ({type(error).__name__}: {error}). Run it again to continue."
        ) from error


def _brought(name: str, revision: str | None, weights: str, why: str | None, here: str = "") -> Path:
    """A model's settings and weights; those that are here already, if there is a reason why others cannot be had."""
    wanted = [here] if here else [*SETTINGS, weights]
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=wanted,
                ignore_patterns=None if here else ELSEWHERE,
                local_files_only=why is not None,
            )
        )
    except Exception as error:  # its HTTP client has changed with releases, and the errors with it
        if why is None:
            raise FetchFailed(
                f"{name!r}: the download broke off ({type(error).__name__}: {error}). Run it again to continue."
            ) from error
        raise FetchFailed(
            f"{name!r}: is not a folder here nor, as a whole, among the downloaded models, and {why}. Connect to the "
            "network, set HF_ENDPOINT to a mirror, or give the path of a model folder or .gguf file."
        ) from error


def _asked(name: str, revision: str | None) -> tuple[str, list[str]]:
    """Why the Hub cannot be asked ("" if it can), and the files of a model; BadModel if it has no such model.

    Asked first and with little patience: a download would try a dead line again and again for half a minute.
    """
    try:
        told = HfApi().model_info(name, revision=revision, timeout=PATIENCE)
    except HFValidationError as error:
        raise BadModel(f"{name!r}: is no folder, no .gguf file and no name of a model on the Hub. {error}") from error
    except RevisionNotFoundError as error:
        raise BadModel(
            f"{name!r}: the Hub has this model, but no revision {revision!r}. Give a branch, a tag or a commit of it."
        ) from error
    except RepositoryNotFoundError as error:
        raise BadModel(
            f"{name!r}: the Hub has no such model, or it is private or gated. Check the name, or run `hf auth login`."
        ) from error
    except Exception as error:
        return f"{constants.ENDPOINT} cannot be reached ({type(error).__name__}: {error})", []
    return "", [str(file.rfilename) for file in told.siblings or ()]

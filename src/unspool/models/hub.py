"""Models of the Hugging Face Hub, by its own library: downloads that continue, revisions, tokens, mirrors, the cache.

`HF_ENDPOINT`, `HF_TOKEN`, `HF_HOME` and `HF_HUB_OFFLINE` mean what they mean there. Code of a model is not downloaded.
The models of the catalogue do not come from here: see `fetch.py`.
"""

from __future__ import annotations

from pathlib import Path

from ..core.errors import BadModel, FetchFailed
from .address import offline

PATIENCE = 5.0  # seconds to wait for a first answer of the Hub
SETTINGS = ["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"]
ELSEWHERE = ["*/*", "consolidated*"]  # the same weights for other programs


def snapshot(address: str) -> Path:
    """The folder of a model, org/name or org/name@revision: brought here, or as it was if the Hub cannot be reached."""
    name, _, revision = address.partition("@")
    why = "UNSPOOL_OFFLINE is set" if offline() else _unreachable(name, revision or None)
    folder = _brought(name, revision or None, "*.safetensors", why)
    if not any(folder.glob("*.safetensors")):  # an older model, which only transformers reads
        folder = _brought(name, revision or None, "*.bin", why)
    return folder


def _brought(name: str, revision: str | None, weights: str, why: str | None) -> Path:
    """A model's settings and weights; those that are here already, if there is a reason why others cannot be had."""
    from huggingface_hub import snapshot_download  # here: it takes a while, and most models come from elsewhere

    wanted = [*SETTINGS, weights]
    try:
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=wanted,
                ignore_patterns=ELSEWHERE,
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


def _unreachable(name: str, revision: str | None) -> str | None:
    """Why the Hub cannot be asked, if it cannot; BadModel if it can and has no such model.

    Asked first and with little patience: a download would try a dead line again and again for half a minute.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    try:
        HfApi().model_info(name, revision=revision, timeout=PATIENCE)
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
        return f"{constants.ENDPOINT} cannot be reached ({type(error).__name__}: {error})"
    return None

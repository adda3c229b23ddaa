"""A download that can be broken off anywhere and continued: HTTP ranges, a .part file, and a checksum at the end.

By the standard library, for addresses that pip's index gives; the Hub's own library brings what is there (`hub.py`).
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from ..core.errors import FetchFailed

CHUNK = 1 << 16
_ATTEMPTS = 4
PAUSE_S = 0.5
_TIMEOUT_S = 30.0
_SATISFIED = 416


class Barred(Exception):
    """The address cannot be read directly (credentials, certificates, proxies); pip itself may still manage."""


def download(
    url: str, part: Path, advance: Callable[[int], None], attempts: int = _ATTEMPTS, pause_s: float = PAUSE_S
) -> None:
    """Bring `url` into the file `part`, continuing what is already there; `advance` is told of every byte (or minus).

    A broken connection is tried again from where it broke. Raises Barred if not one byte could be had, and FetchFailed
    if the connection breaks for good; `part` then keeps what has arrived.
    """
    last: Exception | None = None
    stalls = 0
    while stalls < attempts:
        before = _size(part)
        try:
            _continue(url, part, advance)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code != _SATISFIED or not before:
                raise Barred(f"the server answered {error.code} {error.reason}") from error
            # What is there is no beginning of what the server has: start over.
            advance(-before)
            part.unlink()
            last = error
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            if isinstance(getattr(error, "reason", error), ssl.SSLError):
                raise Barred(f"the connection is not trusted: {error}") from error
            last = error
        stalls = 0 if _size(part) > before else stalls + 1
        if stalls < attempts:
            time.sleep(pause_s * stalls)
    if not _size(part):
        raise Barred(f"nothing arrived: {last}") from last
    raise FetchFailed(f"The connection broke {attempts} times in a row ({last}). Run it again to continue.") from last


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _continue(url: str, part: Path, advance: Callable[[int], None]) -> None:
    have = _size(part)
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "unspool"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        continues = (
            have and answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        )
        if have and not continues:
            advance(-have)
        promised = answer.headers.get("Content-Length")
        left = int(promised) if promised and promised.isascii() and promised.isdigit() else None
        with part.open("ab" if continues else "wb") as file:
            while block := answer.read(CHUNK):
                file.write(block)
                advance(len(block))
                left = None if left is None else left - len(block)
    if left:
        raise http.client.IncompleteRead(b"", left)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0

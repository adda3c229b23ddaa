"""The body of a request, read within limits of size and time."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request

from .refusal import Refusal
from .response_stream import Left


async def read(request: Request, most: int, seconds: float) -> bytes:
    """The bytes of a JSON body; refuses other kinds of content, too many bytes, and those that do not come in time.

    The kind is asked for because a web page can send any other to a server on this machine without being asked first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(415, f"the content type is {kind or 'missing'}; expected application/json", code="content_type")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:18]) > 2 * most:
        raise _large(most)
    try:
        return await asyncio.wait_for(_bytes(request, most), seconds)
    except asyncio.TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} seconds", code="timeout") from None
    except ClientDisconnect:
        raise Left("the client hung up") from None


async def _bytes(request: Request, most: int) -> bytes:
    """What comes; a little too much is read to its end, as clients that still send do not hear a refusal."""
    kept, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > 2 * most:
            break
        kept += chunk if size <= most else b""
    if size > most:
        raise _large(most)
    return bytes(kept)


def _large(most: int) -> Refusal:
    return Refusal(413, f"the body is too large; this server reads at most {most} bytes", code="body_too_large")

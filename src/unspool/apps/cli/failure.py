"""How failures end: one line on stderr that says what to do, and an exit status that scripts can tell apart."""

from __future__ import annotations

import os
import sys
import traceback

import click

from ...core.errors import BadRequest, OutOfRoom, UnspoolError
from .terminal import visible

FAILED, BAD_REQUEST, INTERRUPTED = 1, 2, 130

# Options that had another name before 0.1.
RENAMED = {
    "--room": "--kv-cache-tokens",
    "--weights": "--quantization",
    "--shapes": "--batch-invariant",
    "--repetition": "--repetition-penalty",
    "--frequency": "--frequency-penalty",
    "--presence": "--presence-penalty",
    "--no-repeat-ngram": "--no-repeat-ngram-size",
}


def report(error: Exception) -> int:
    """Say what went wrong and return the exit status; UNSPOOL_DEBUG=1 adds the traceback."""
    if os.environ.get("UNSPOOL_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    message, code = _said(error)
    print(visible(f"unspool: {message}", sys.stderr), file=sys.stderr, flush=True)
    return code


def _said(error: Exception) -> tuple[str, int]:
    if isinstance(error, click.NoSuchOption) and error.option_name in RENAMED:
        return f"{error.option_name} is now called {RENAMED[error.option_name]}.", BAD_REQUEST
    if isinstance(error, click.UsageError):
        where = f" See: {error.ctx.command_path} --help" if error.ctx is not None else ""
        return _plain(error.format_message()) + where, BAD_REQUEST
    if isinstance(error, click.ClickException):
        return error.format_message(), error.exit_code
    if isinstance(error, (BadRequest, OutOfRoom)):
        return str(error), BAD_REQUEST
    if isinstance(error, UnspoolError):
        return str(error), FAILED
    if isinstance(error, MemoryError):
        return "the machine has no memory left for this; see what it needs with: unspool plan", FAILED
    if isinstance(error, OSError):
        return f"{error.filename or 'input or output'}: {error.strerror or error}", FAILED
    return (
        f"{type(error).__name__}: {error}. This is a mistake in unspool or in a package it uses; "
        "run again with UNSPOOL_DEBUG=1 to see where.",
        FAILED,
    )


def _plain(message: str) -> str:
    """Click's sentences begin with a capital letter and end with a full stop; ours follow `unspool: `."""
    message = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return message if message.endswith((".", "?", "?)", "!")) else message + "."

"""`python -m unspool.apps.integrations …`: lm-evaluation-harness's command line with the model `unspool` in it."""

from __future__ import annotations

from ...core.errors import MissingExtra, UnspoolError
from ...core.extra import brought_by


def main() -> None:
    """Register, then hand over."""
    try:
        lm_eval = brought_by("lm-eval", "lm_eval.__main__", "The harness")
    except MissingExtra as error:
        raise SystemExit(str(error)) from error
    from . import harness  # noqa: F401  (registers itself with lm_eval, which is known to be there by now)

    try:
        lm_eval.cli_evaluate()
    except UnspoolError as error:
        raise SystemExit(f"unspool: {error}") from None


if __name__ == "__main__":
    main()

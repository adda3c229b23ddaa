"""`python -m unspool.apps.integrations …`: lm-evaluation-harness's command line with the model `unspool` in it."""

from __future__ import annotations

from ...core.errors import MissingExtra, UnspoolError


def main() -> None:
    """Register, then hand over."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError as error:
        raise SystemExit(str(MissingExtra("lm_eval", "lm-eval", "The harness"))) from error
    from . import harness  # noqa: F401  (registers itself with lm_eval, which is known to be there by now)

    try:
        cli_evaluate()
    except UnspoolError as error:
        raise SystemExit(f"unspool: {error}") from None


if __name__ == "__main__":
    main()

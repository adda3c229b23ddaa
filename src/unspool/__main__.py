"""`python -m unspool` is the command `unspool`."""

from .apps.cli import main

if __name__ == "__main__":
    main()

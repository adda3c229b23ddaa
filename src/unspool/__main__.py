"""`python -m unspool` is the command `unspool`."""

from .cli import main

if __name__ == "__main__":
    main()

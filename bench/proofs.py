"""What enumeration finds of every rule, as a result that pages can show: python bench/proofs.py [--json FILE].

It is `unspool prove --quick` for all rules. What was enumerated is kept: run the same command again after an interrupt
or a new rule, and it goes on; `--again` enumerates the chosen rules anew, and what was enumerated in a tree with
changes is enumerated again in one that has none. Each row keeps its machine and commit; `--join FILE …` takes the rows
of runs that did a share of the rules each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from record import rows, save, stale
from tqdm import tqdm

from unspool.proof.prove import prove_entry
from unspool.recipes.methods import entries
from unspool_bench.journal import Journal
from unspool_bench.machine import machine

ASKED = {"effort": "quick"}
PARTS = ("proofs",)  # of a result
FIGURES = ("claim", "tv", "branches", "cases", "skipped", "ok", "counterexample")


def opened(file: Path | None) -> Journal:
    """The journal beside a result, begun with what the result has."""
    beside = None if file is None else file.with_suffix(".jsonl")
    fresh = beside is None or not beside.exists()
    journal = Journal(beside, ASKED)
    for name, proof in rows(file, PARTS, ASKED).items() if fresh and file is not None and file.exists() else ():
        journal.add((name,), proof)
    return journal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rules", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--again", action="store_true", help="enumerate them even if they were enumerated")
    parser.add_argument("--join", nargs="+", type=Path, default=[], metavar="FILE", help="take what these hold first")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args()
    known = entries()
    unknown = [name for name in args.rules or () if name not in known]
    if unknown:
        parser.error(f"no rule is called {', '.join(unknown)}; there are: {', '.join(known)}")
    journal, here = opened(args.json), machine()
    for name, proof in (each for file in args.join for each in rows(file, PARTS, ASKED).items()):
        journal.add((name,), proof)
    chosen = args.rules or ([] if args.join else known)
    due = [name for name in chosen if args.again or (name,) not in journal or stale(journal[name,])]
    with tqdm(due, unit="rule", disable=not sys.stderr.isatty()) as bar:
        for name in bar:
            bar.set_description(name)
            found: dict[str, Any] = prove_entry(known[name], quick=True).record()
            journal.add((name,), {"machine": here, **{key: found[key] for key in FIGURES if key in found}})
            tqdm.write(f"{name}: {found['claim']}, {found['tv']:.3g} in {found['cases']} cases", file=sys.stdout)
    if args.json:
        proofs = {name: found for (name,), found in journal.items()}
        save(str(args.json), {**ASKED, "proofs": {name: proofs[name] for name in known if name in proofs}})
        args.json.with_suffix(".jsonl").unlink(missing_ok=True)


if __name__ == "__main__":
    main()

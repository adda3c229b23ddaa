"""Molecules as SMILES: whether a text is one, and an oracle of what it is worth, without a library of chemistry.

The reader knows organic atoms, atoms in brackets, bonds, branches and rings, and counts valences; it knows nothing of
aromatic systems but that an aromatic atom has one bond more than it shows, if it can. `druglike` is a stand-in for the
oracles of the field: 1 for about 25 heavy atoms, three rings and a quarter of them neither carbon nor hydrogen.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

VALENCES = {"B": 3, "C": 4, "N": 3, "O": 2, "P": 5, "S": 6, "F": 1, "Cl": 1, "Br": 1, "I": 1}
_TOKEN = re.compile(
    r"(?P<bracket>\[(?:\d+)?(?P<inner>[A-Z][a-z]?|[bcnops]|se|as)(?:@{0,2})(?P<hydrogens>H\d?)?(?P<charge>[+-]+\d*)?\])"
    r"|(?P<atom>Cl|Br|[BCNOPSFI]|[bcnops])|(?P<bond>[-=#:/\\])|(?P<open>\()|(?P<close>\))|(?P<ring>%\d\d|\d)"
)
_ORDERS = {"=": 2, "#": 3}


class Molecule(NamedTuple):
    """What was counted: heavy atoms, those that are not carbon, and rings."""

    atoms: int
    others: int
    rings: int


class _Atom(NamedTuple):
    element: str
    aromatic: bool
    free: int | None  # bonds it may have; None for one in brackets, whose charge and hydrogens say


def molecule(text: str) -> Molecule | None:
    """The molecule that a text spells, None if it spells none."""
    atoms, bonds = list[_Atom](), list[int]()
    above, rings = list[int](), dict[str, tuple[int, int]]()
    last, order, at, closed = -1, 0, 0, 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return None
        at = found.end()
        if found["bond"]:
            if last < 0 or order:
                return None
            order = _ORDERS.get(found["bond"], 1)
        elif found["open"]:
            if last < 0 or order:
                return None
            above.append(last)
        elif found["close"]:
            if not above or order or text[found.start() - 1] == "(":
                return None
            last = above.pop()
        elif found["ring"]:
            if last < 0:
                return None
            if found["ring"] in rings:
                other, told = rings.pop(found["ring"])
                if other == last or (order and told and order != told):
                    return None
                for atom in (other, last):
                    bonds[atom] += max(1, order, told)
                closed += 1
            else:
                rings[found["ring"]] = (last, order)
            order = 0
        else:
            name = found["inner"] or found["atom"]
            element = name.capitalize()
            atoms.append(_Atom(element, name.islower(), None if found["bracket"] else VALENCES[element]))
            bonds.append(0)
            if last >= 0:
                for atom in (last, len(atoms) - 1):
                    bonds[atom] += max(1, order)
            last, order = len(atoms) - 1, 0
    if above or rings or order or not atoms or not all(map(_fits, atoms, bonds)):
        return None
    return Molecule(len(atoms), sum(atom.element != "C" for atom in atoms), closed)


def _fits(atom: _Atom, bonds: int) -> bool:
    if atom.free is None:
        return bonds <= 6
    more = atom.aromatic and bonds < atom.free
    return bonds + more <= atom.free


def druglike(text: str) -> float:
    """From 0 to 1: 0 for what is no molecule, and the nearer to 1 the more its counts are those wanted."""
    found = molecule(text.strip())
    if found is None:
        return 0.0
    apart = ((found.atoms - 25) / 6, (found.rings - 3) / 1.5, (found.others / found.atoms - 0.25) / 0.12)
    return math.exp(-sum(x * x for x in apart) / 2)

"""Sets of items that an operator offers by name; a request names one, never a file, and its text is one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...api.settings import Settings
from ...core.errors import BadRequest
from ...rules.constrain import Form
from ...rules.constrain.constraint import Constraint, State
from .refusal import Refusal

FIELD = "response_format"


@dataclass(frozen=True)
class NamedItems(Form):
    """One of the items of a set that the operator has given this name."""

    name: str

    def fit(self, words: Any) -> Constraint:
        message = f"there is no set of items {self.name[:80]!r} here; only a server offers sets, by --items NAME=FILE"
        raise BadRequest(message, FIELD)


@dataclass(frozen=True)
class FittedItems:
    """A set over the model's tokens, which need not be fitted again for every request."""

    constraint: Constraint

    def start(self) -> State:
        """Nothing written yet."""
        return self.constraint.start()


@dataclass(frozen=True)
class ItemSets:
    """The sets by name; each is put into tokens when it is first asked for, and then kept."""

    forms: Mapping[str, Form] = field(default_factory=dict)
    _fitted: dict[str, FittedItems] = field(default_factory=dict, compare=False, repr=False)

    def resolved(self, settings: Settings, vocabulary: Any) -> Settings:
        """The settings with the set that they name; Refusal if there is none."""
        named = settings.constraint
        if not isinstance(named, NamedItems):
            return settings
        if named.name not in self.forms:
            offered = ", ".join(sorted(self.forms)) or "none (unspool serve --items NAME=FILE)"
            message = f"there is no set of items {named.name[:80]!r} here; there are: {offered}"
            raise Refusal(400, message, param=FIELD, code="invalid_value")
        if named.name not in self._fitted:
            self._fitted[named.name] = FittedItems(self.forms[named.name].fit(vocabulary))
        return replace(settings, constraint=self._fitted[named.name])

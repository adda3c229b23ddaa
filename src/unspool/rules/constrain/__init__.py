"""Constraints: conditions on texts that hold token by token, in every decoder, tree node, beam, particle and canvas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .asap import Asap as Asap
    from .awrs import AdaptiveRejection as AdaptiveRejection, Awrs as Awrs, FullMask as FullMask, Geometric as Geometric
    from .awrs import Propose as Propose, Recursive as Recursive
    from .begun import Begun as Begun, taken_back as taken_back
    from .cars import Cars as Cars
    from .combine import AllOf as AllOf, AnyOf as AnyOf, Followed as Followed
    from .constraint import Constrained as Constrained, Constraint as Constraint, State as State
    from .context_free import Cfg as Cfg, cfg as cfg, read_cfg as read_cfg
    from .form import Form as Form
    from .futures import Futures as Futures
    from .grammars import Grammar as Grammar, Regex as Regex, grammar as grammar, regex as regex
    from .itemset import ItemSet as ItemSet
    from .lexical import Keywords as Keywords, keywords as keywords
    from .potential import Potential as Potential, UnboundPotential as UnboundPotential
    from .predicates import Predicate as Predicate, predicate as predicate
    from .schema import JsonSchema as JsonSchema, Report as Report, json_schema as json_schema
    from .sentinel_form import Sentinels as Sentinels, sentinels as sentinels
    from .static import Items as Items, Shelf as Shelf, Static as Static, items as items
    from .trie import Choices as Choices, choices as choices
    from .unless_form import Unless as Unless, unless as unless
    from .until_form import Until as Until, until as until
    from .within import Within as Within
    from .schema import Woven as Woven
    from .xgrammar import XGrammarSchema as XGrammarSchema, xgrammar_schema as xgrammar_schema

__getattr__, __dir__ = lazily(__name__)

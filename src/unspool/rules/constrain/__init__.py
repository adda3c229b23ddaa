"""Constraints: conditions on texts that hold token by token, in every decoder, tree node, beam, particle and canvas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core.lazy import lazily

if TYPE_CHECKING:
    from .asap import Asap as Asap
    from .awrs import AdaptiveRejection as AdaptiveRejection
    from .awrs import Awrs as Awrs
    from .awrs import FullMask as FullMask
    from .awrs import Geometric as Geometric
    from .awrs import Propose as Propose
    from .awrs import Recursive as Recursive
    from .cars import Cars as Cars
    from .combine import AllOf as AllOf
    from .combine import AnyOf as AnyOf
    from .combine import Followed as Followed
    from .constraint import Constrained as Constrained
    from .constraint import Constraint as Constraint
    from .constraint import State as State
    from .context_free import Cfg as Cfg
    from .context_free import cfg as cfg
    from .form import Form as Form
    from .futures import Futures as Futures
    from .grammars import Grammar as Grammar
    from .grammars import Regex as Regex
    from .grammars import grammar as grammar
    from .grammars import regex as regex
    from .itemset import ItemSet as ItemSet
    from .lexical import Keywords as Keywords
    from .lexical import keywords as keywords
    from .potential import Potential as Potential
    from .potential import UnboundPotential as UnboundPotential
    from .predicates import Predicate as Predicate
    from .predicates import predicate as predicate
    from .schema import JsonSchema as JsonSchema
    from .schema import Report as Report
    from .schema import json_schema as json_schema
    from .sentinel_form import Sentinels as Sentinels
    from .sentinel_form import sentinels as sentinels
    from .static import Shelf as Shelf
    from .static import Static as Static
    from .trie import Choices as Choices
    from .trie import choices as choices
    from .unless_form import Unless as Unless
    from .unless_form import unless as unless
    from .until_form import Until as Until
    from .until_form import until as until
    from .within import Within as Within
    from .woven import Woven as Woven
    from .xgrammar import XGrammarSchema as XGrammarSchema
    from .xgrammar import xgrammar_schema as xgrammar_schema

__getattr__, __dir__ = lazily(__name__)

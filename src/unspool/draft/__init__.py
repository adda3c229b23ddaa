"""Drafters: one file per idea of what might come next."""

from .bush import Bush as Bush
from .chain import Chain as Chain
from .draft import Draft as Draft
from .draft import Proposing as Proposing
from .draft import Source as Source
from .lookup import Lookup as Lookup
from .nothing import Nothing as Nothing

"""Weights that were trained for models of unspool's catalogue.

`heads` and `drafters` look ahead, `deltas` change a model, `filters` tell which of its guesses are final. There is no
code here: `unspool.core.files` finds the files.
"""

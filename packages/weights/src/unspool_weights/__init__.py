"""Weights that were trained for models of unspool's catalogue: `heads` and `drafters` look ahead, `deltas` change one.

There is no code here: `unspool.models.catalog` finds the files.
"""

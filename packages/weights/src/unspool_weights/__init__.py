"""Weights that were trained for models of unspool's catalogue: `heads` look ahead, `deltas` change a model.

There is no code here: `unspool.models.catalog` finds the files.
"""

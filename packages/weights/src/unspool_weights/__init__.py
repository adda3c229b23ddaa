"""Weights that were trained for models of unspool's catalogue: `heads` look ahead, `deltas` change a model.

There is no code here: `unspool.models.trained_weights` finds the files.
"""

"""Names to weights: the catalog of models, the readers of model files, their tokens and their shapes.

Import from the modules themselves; nothing is imported here, so that looking at the catalog does not load torch.
"""

"""Trained drafters on disk: one description of what such a network is, and the readers of every published form."""

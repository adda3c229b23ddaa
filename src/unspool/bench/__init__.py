"""Benchmarks that are part of the package: tasks whose right answers, and whose best possible scores, are known."""

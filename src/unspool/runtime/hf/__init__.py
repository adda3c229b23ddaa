"""Models of the transformers library behind the same contract."""

"""Training: models that are taught to fill holes, and the small nets that decoding rules learn with."""

"""One rule per file, by family: drafters, verifiers, unmasking, search, constraints, and methods made of methods."""

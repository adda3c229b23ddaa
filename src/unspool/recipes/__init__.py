"""Methods by name: which rules make a method, what its options may be, and which names it is known by."""

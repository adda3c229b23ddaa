"""The three loops of decoding, plain, speculative and any-order, and the bases of the parts that they are made of."""

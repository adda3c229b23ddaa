"""Training drafters: one loop and one description of the network, of which the kinds are settings."""

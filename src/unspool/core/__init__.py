"""The nouns of decoding: laws, chance, trees, canvases, asks, stops, claims, warps. Everything is written in them."""

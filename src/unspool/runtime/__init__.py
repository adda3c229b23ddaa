"""Everything that owns tensors: sessions and their contracts, models, caches, and the engine that batches them."""

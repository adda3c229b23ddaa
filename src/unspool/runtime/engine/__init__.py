"""The engine: who joins when, what is asked of which model, and the contracts between it and whatever owns tensors."""

"""Draft models with another vocabulary or too little room, seen as if they had the target's."""

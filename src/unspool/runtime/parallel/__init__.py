"""One model on several ranks: who leads, who follows, and what they do together."""

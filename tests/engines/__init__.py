"""Real engines and real writers, in environments of their own, and what they are given to load."""

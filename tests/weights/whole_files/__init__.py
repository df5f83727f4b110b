"""Whole checkpoints of known history: healthy ones of many families, and the same with one fault each."""

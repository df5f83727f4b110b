"""Watching real loaders: `trace_load.py` is a script for an engine's own Python, `watch.py` its core.

A folder of its own: beside the script must lie no ``sglang.py`` that ``import sglang`` would find.
"""

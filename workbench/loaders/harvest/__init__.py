"""Harvest what every class of an installed SGLang does with the keys of a checkpoint.

Run ``python -m workbench.loaders.harvest``: `__main__` runs in the workbench's Python. The other files run in
the engine's Python, import nothing of the workbench and keep to Python 3.10; `expressions` and `families` are
used by both.
"""

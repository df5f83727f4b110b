"""Harvest what every class of an installed SGLang does with the keys of a checkpoint.

Run ``python -m workbench.loaders.harvesting``, in the workbench's Python. The files here run in the engine's
Python, import nothing of the workbench and keep to Python 3.10; both use `expressions` and `families`.
"""

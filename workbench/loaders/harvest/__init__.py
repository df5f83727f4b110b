"""Harvest what every class of an installed SGLang does with checkpoint keys: run ``python -m workbench.loaders.harvest``.

`__main__` runs in the workbench's Python. The other files run in the engine's Python, import nothing of the
workbench and keep to Python 3.10; `expressions` is shared by both.
"""

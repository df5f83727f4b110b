"""Hang cases that the rules were not tuned to: rebuilt public reports, and healthy servers.

Each file of `cases/` and of `second/` is one case as text: where it is from, what is true, what an answer
may and must say, and the evidence. `build.py` writes the evidence as the folder that a user would have.
`python -m tests.hang_unseen` judges the first set and counts, with `--set second` the second; nothing here
imports a rule.

A case is never changed to suit a rule. If its truth is wrong, correct it in a commit of its own that
says which source shows it.
"""

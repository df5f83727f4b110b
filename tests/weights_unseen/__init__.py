"""Checkpoints whose history is known, by another hand than the rules of `scan_weights`.

`healthy.py` holds files that a careless tool would accuse, `sick.py` files that a careless tool would
clear. Each case has its source and the answers that are right, written down before the first run.
`python -m tests.weights_unseen` builds them in a temporary folder, asks, and counts; nothing here imports
a rule. A case is never changed to suit a rule: if its truth is wrong, `changed` of the case says so.
"""

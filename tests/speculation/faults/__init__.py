"""Faults of an EAGLE-3 draft, written into files or recorded from an engine, and what must be said of each.

python -m tests.speculation.faults            # all of them, and docs/replay.md
python -m tests.speculation.faults NAME ...   # some of them, on the terminal
"""

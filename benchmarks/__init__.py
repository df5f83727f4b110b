"""Measurements against peers: ratios in one run, never timed tests."""

"""``make bench``: every measurement, one after the other."""

from __future__ import annotations

from benchmarks import diff, hang, headers, weights

if __name__ == "__main__":
    headers.main([])
    print()
    diff.main()
    print()
    weights.main([])
    print()
    hang.main()

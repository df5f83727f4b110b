"""``make bench``: every measurement, one after the other."""

from __future__ import annotations

from benchmarks import diff, hang, hang_attach, headers, weights

if __name__ == "__main__":
    headers.main([])
    print()
    diff.main()
    print()
    hang_attach.main()
    print()
    weights.main([])
    print()
    hang.main()

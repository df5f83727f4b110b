"""``make bench``: every measurement, one after the other."""

from __future__ import annotations

from benchmarks import diff, hang, hang_attach, headers, replay, replay_fidelity, weights

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
    print()
    replay.main(["--prompts", "20", "--generated", "20", "--look", "20"])
    print()
    replay_fidelity.main(["--prompts", "5"])

"""Let the ranks of an unpacked SGLang share the first GPU: for hosts with one.

    python3 data/scripts/incident/one_card.py ~/engine

Three places of the unpacked engine are changed. Every scheduler gets the first GPU, and a host name of its
own for NCCL, which refuses two ranks of one host on one card; the P2P check of the custom all-reduce, which
asks for a second GPU, says yes; and the MLP of Llama asks `mischief.py` in a capture: SGLang registers its
forward hooks only after its captures. Nothing else is touched. NCCL has to talk through sockets then::

    export NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo
    export SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SHARED = "server_args.base_gpu_id  # all ranks share one card\n"
HOST = '                    __import__("os").environ["NCCL_HOSTID"] = f"stage {pp_rank} rank {tp_rank}"\n'
CHANGES = (
    (
        "entrypoints/engine.py",
        r"(gpu_id = )\(\n\s+server_args\.base_gpu_id\n.*\n.*\n\s+\)\n",
        lambda found: found[1] + SHARED + HOST,
    ),
    (
        "distributed/device_communicators/custom_all_reduce_utils.py",
        r"def can_p2p\(.*\n",
        lambda found: found[0] + "    return True  # the peer is on the same card\n",
    ),
    (
        "models/llama.py",
        r"\Z",
        lambda _: "\n\nimport mischief\n\nmischief.in_captures(LlamaMLP)\n",
    ),
)


def share(engine: Path) -> None:
    """Change the unpacked engine; a second call is refused, and so is a release that reads otherwise."""
    for name, pattern, text in CHANGES:
        file = engine / "sglang" / "srt" / name
        changed, times = re.subn(pattern, text, file.read_text())
        if times != 1:
            raise ValueError(f"{name} is not as expected")
        file.write_text(changed)


if __name__ == "__main__":
    share(Path(sys.argv[1]))

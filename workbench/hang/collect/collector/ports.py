"""Whether a server's HTTP port is open, without a request."""

from __future__ import annotations

import socket

from workbench.hang.collect.collector import proc, servers

_DEFAULTS = {"sglang": 30000, "vllm": 8000}
_LISTEN = "0A"


def is_open(root: int, argv: list[str], engine: str = "sglang") -> bool | None:
    """Whether the server's HTTP port is listened on; nothing is sent to it.

    Its own table of sockets is read, which works across containers; where it cannot be read, None.
    """
    given = servers.option(argv, "--port") or ""
    port = int(given) if given.isdigit() else _DEFAULTS.get(engine, _DEFAULTS["sglang"])
    tables = [proc.read(root, f"net/{name}") for name in ("tcp", "tcp6")]
    if not tables[0]:
        return _connects(port)
    for line in "\n".join(tables).splitlines():
        fields = line.split()
        if (
            len(fields) > 3
            and fields[3] == _LISTEN
            and int(fields[1].rpartition(":")[2], 16) == port
        ):
            return True
    return False


def _connects(port: int) -> bool | None:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except ConnectionRefusedError:
        return False
    except OSError:
        return None

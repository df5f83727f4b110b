"""How many ranks each source of a launch asks for: what a launcher wrote down, the log, the main process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from workbench.facts.flags import canonical
from workbench.hang.read.host import Host, command_arguments
from workbench.hang.sizes import whole

_SIZES = ("tp-size", "pp-size", "dp-size")


def launch_sizes(
    hosts: Iterable[Host], joined: Mapping[str, str], version: str
) -> tuple[tuple[str, int], ...]:
    """Return each source that gives a size, with the number of ranks that it asks for.

    `joined` are the arguments that are believed: they fill in what a source does not say.
    """
    believed = _canonical(joined, version)
    found: dict[tuple[str, int], None] = {}
    for source, arguments in _sources(hosts):
        own = _canonical(arguments, version)
        if any(name in own for name in _SIZES):
            found[source, _ranks(believed | own)] = None
    return tuple(found)


def _sources(hosts: Iterable[Host]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for host in hosts:
        yield "launch.json", host.command
        for log in host.logs:
            yield "the server's log", log.arguments
        for moment in host.moments:
            for process in moment.listed.processes if moment.listed else ():
                if process.role == "parent" and process.arguments:
                    words = list(process.arguments)
                    yield "the main process", command_arguments(words, host.version)


def _canonical(arguments: Mapping[str, str], version: str) -> dict[str, str]:
    return {canonical(name, version): value for name, value in arguments.items()}


def _ranks(arguments: Mapping[str, str]) -> int:
    """Return the number of ranks; with DP attention all are of one group."""
    attention = (
        arguments.get("enable-dp-attention", "").lower() == "true"
        or whole(arguments, "attn-dp-size") > 1
    )
    replicas = 1 if attention else whole(arguments, "dp-size")
    return whole(arguments, "tp-size") * whole(arguments, "pp-size") * replicas

"""The hosts of one launch joined into a scene: arguments, snapshots, exits, nodes and clocks."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workbench.errors import WorkbenchError, shorten
from workbench.evidence.pseudonyms import TOKEN
from workbench.facts.flags import canonical
from workbench.facts.startup import rank_of_prefix, world_rank
from workbench.facts.startup_markers import read_marker
from workbench.hang.read.engine import (
    engine_of,
    launched_ranks,
    process_of_dump,
    version_of,
    with_engine_roles,
)
from workbench.hang.read.exits import without_victims
from workbench.hang.read.families import with_families
from workbench.hang.read.host import Host, Moment, command_arguments, log_moments, unreadable
from workbench.hang.read.launch_sizes import launch_sizes
from workbench.hang.read.log import ReadLog
from workbench.hang.read.processes import as_process, rank_of_parts, with_world
from workbench.hang.read.pyspy import TextDump
from workbench.hang.read.ras import MOST_RANKS
from workbench.hang.records import Gpu, Process, Rank, Scene, Snapshot

_MOST_NOTES = 60
# Seconds that a log's clock may be off from that of the processes' starts.
_CLOCKS = 5.0
_SIZES = frozenset({"tp-size", "pp-size", "dp-size", "nnodes"})
# What differs between the nodes of one launch, or by chance.
_OF_A_NODE = frozenset(
    {"node-rank", "random-seed", "host", "port", "nccl-port", "dist-init-addr", "base-gpu-id"}
    | {"model-path", "tokenizer-path"}
)


class Joined:
    """The hosts of one launch, and what follows from all of them together."""

    def __init__(self, source: str, hosts: list[Host], notes: list[str]) -> None:
        """Join hosts; raises where they are of several launches."""
        self.source = source
        self.hosts = hosts
        self.notes = [*notes, *(note for host in hosts for note in host.notes)]
        self._same_logs()
        for host in hosts:
            self._own_logs(host)
        self._one_launch()
        self.engine = engine_of(hosts)
        self.arguments = self._arguments()
        self.version = version_of(hosts, self.engine)
        self.sizes = (self._size("tp-size"), self._size("pp-size"))
        attention = self._given("enable-dp-attention") == "True" or self._size("attn-dp-size") > 1
        self.replicas = 1 if attention else self._size("dp-size")
        self.told = launch_sizes(hosts, self.arguments, self.version)

    def scene(self) -> Scene:
        """Return the scene; raises where two servers are in it."""
        snapshots = [one for host in self.hosts for one in self._snapshots(host)]
        snapshots = [with_families(with_engine_roles(one, self.engine)) for one in snapshots]
        snapshots = _apart(self._merged(snapshots))
        self._sized_by(snapshots)
        snapshots = [self._numbered(one) for one in snapshots]
        self._one_server(snapshots)
        logs = [log for host in self.hosts for log in host.logs]
        ahead = {
            id(log): host.manifest.utc_offset
            for host in self.hosts
            for log in host.logs
            if host.manifest is not None
        }
        self.notes += [note for log in logs for note in log.notes]
        ports = {host.manifest.port_open for host in self.hosts if host.manifest} - {None}
        texts = ",".join(sorted({text for log in logs for text in log.texts}))
        records: dict[str, Any] = {}
        flight = [one for host in self.hosts for one in host.flight]
        ras = [one for host in self.hosts for one in host.ras]
        for name, value in (("flight", flight), ("ras", ras), ("log_versions", texts)):
            if value:
                records[name] = value
        return Scene(
            source=self.source,
            snapshots=tuple(sorted(snapshots, key=lambda one: one.at)),
            logs=tuple(dataclasses.replace(log.log, ahead=ahead.get(id(log))) for log in logs),
            engine=self.engine,
            version=self.version,
            arguments=self.arguments,
            environment=self._environment(),
            expected_ranks=self._expected() or launched_ranks(snapshots, self.engine),
            sizes=self.told,
            port_open=(True in ports) if ports else None,
            exits=self._exits(snapshots),
            not_collected=self._not_collected(snapshots),
            clock_skew=self._skew(),
            records=records,
            notes=tuple(dict.fromkeys(self.notes))[:_MOST_NOTES],
            unread=tuple(one for host in self.hosts for one in unreadable(host.failed)),
        )

    # -- arguments and sizes -----------------------------------------------------------------------

    def _same_logs(self) -> None:
        """Keep a log once where two collections of one host hold it: the one that goes further."""
        best: dict[tuple[str, str], ReadLog] = {}
        collected = [host for host in self.hosts if host.manifest is not None]
        for host in collected:
            for log in host.logs:
                known = best.setdefault((host.name, log.log.name), log)
                if (log.log.last_at or 0.0, log.log.total_lines) > (
                    known.log.last_at or 0.0,
                    known.log.total_lines,
                ):
                    best[host.name, log.log.name] = log
        for host in collected:
            host.logs[:] = [log for log in host.logs if best[host.name, log.log.name] is log]

    def _own_logs(self, host: Host) -> None:
        """Leave out a log that is not of these processes: of another size, or over before they began."""
        processes = [
            p
            for moment in host.moments
            for p in (moment.listed.processes if moment.listed else ())
            if p.role in ("parent", "scheduler")
        ]
        commands = [p.arguments for p in processes if p.role == "parent" and p.arguments]
        started = min((p.started for p in processes if p.started is not None), default=None)
        ahead = host.manifest.utc_offset if host.manifest is not None else None
        given = command_arguments(list(commands[-1]), host.version) if commands else {}
        for log in list(host.logs):
            why = _another_size(given, log.arguments, host.version)
            held = host.manifest is not None and bool(host.manifest.logs.get(log.log.name))
            ended = max((one.at for one in log.log.lines if one.at is not None), default=None)
            known = started is not None and ended is not None and ahead is not None
            if not (why or held) and known and ended - ahead < started - _CLOCKS:  # type: ignore[operator]
                why = "its last line is older than the processes"
            if why:
                host.logs.remove(log)
                self.notes.append(f"{shorten(log.log.name)} is of another launch: {why}; left out")

    def _one_launch(self) -> None:
        """Keep the logs of one launch: the newest of one folder; several folders are several launches."""
        told = [(host, log) for host in self.hosts for log in host.logs if log.arguments]
        if len(told) < 2:
            return
        newest = max(told, key=lambda pair: pair[1].log.last_at or 0.0)[1]
        other = [
            (host, log)
            for host, log in told
            if log is not newest and not _one_launch(log.arguments, newest.arguments)
        ]
        if not other:
            return
        places = {log.log.name.rpartition("/")[0] for _, log in (*other, (None, newest))}
        if len(places) > 1 or len(self.hosts) > 1:
            shown = ", ".join(sorted(shorten(log.log.name, 60) for _, log in other)[:3])
            raise WorkbenchError(
                f"{shorten(self.source)} holds several launches",
                why=f"{shorten(newest.log.name, 60)} and {shown} begin one each",
                next_step="Give the folder or the log of one launch.",
            )
        for host, log in other:
            host.logs.remove(log)
            self.notes.append(
                f"{shorten(log.log.name)} is of an older launch than {shorten(newest.log.name)}: left out"
            )

    def _arguments(self) -> Mapping[str, str]:
        logs = [log for host in self.hosts for log in host.logs if log.arguments]
        first = min(logs, key=lambda log: _whole(log.arguments.get("node-rank")) or 0, default=None)
        if first is not None:
            return first.arguments
        for host in self.hosts:
            if host.command:
                return host.command
        for host in self.hosts:
            for moment in host.moments:
                for process in moment.listed.processes if moment.listed else ():
                    if process.role == "parent" and process.arguments:
                        return command_arguments(list(process.arguments), host.version)
        return {}

    def _given(self, name: str) -> str:
        for key, value in self.arguments.items():
            if key == name or canonical(key, self.version) == name:
                return value
        return ""

    def _size(self, name: str) -> int:
        return _whole(self._given(name)) or 1

    def _expected(self) -> int | None:
        """Return the number of ranks; the lowest where sources disagree: no rank is missing for that."""
        if not self.told:
            return None
        every = self.sizes[0] * self.sizes[1] * self.replicas
        if self.replicas == 1:
            every = min(number for _, number in self.told)
        return every if every <= MOST_RANKS else None

    def _sized_by(self, snapshots: Iterable[Snapshot]) -> None:
        """Take the size of a pipeline stage from the titles where nothing else tells it."""
        if self._given("tp-size"):
            return
        parts = [p.rank for one in snapshots for p in one.processes if p.rank is not None]
        highest = max((rank.tp for rank in parts if rank.tp is not None), default=0)
        self.sizes = (highest + 1, self.sizes[1])

    # -- snapshots ---------------------------------------------------------------------------------

    def _snapshots(self, host: Host) -> list[Snapshot]:
        found = [self._snapshot(host, moment) for moment in host.moments]
        # A reading that lies beside the snapshots, in no folder of theirs, is of the last one.
        if len(found) > 1:
            bare = [one for one in found if not one.processes and not one.dumps]
            full = [one for one in found if one.processes or one.dumps]
            if bare and full and not any(one.gpus for one in full):
                found = [*full[:-1], dataclasses.replace(full[-1], gpus=bare[-1].gpus)]
        offset = (host.manifest.utc_offset or 0.0) if host.manifest else 0.0
        for log in host.logs:
            passes, loose = log_moments(log, offset)
            found += [self._from_log(host, one) for one in passes]
            if loose:
                found.append(self._after_death(host, log, loose, offset))
        return found

    def _snapshot(self, host: Host, moment: Moment) -> Snapshot:
        processes = {p.pid: p for p in moment.listed.processes} if moment.listed else {}
        nonblocking = moment.listed.nonblocking if moment.listed else frozenset()
        at = moment.at
        if at is None:
            times = [reading.at for reading in moment.readings if reading.at is not None]
            at = times[-1] if times else moment.written
        for dump in moment.dumps:
            if dump.pid not in processes:
                process = process_of_dump(dump, host.name, moment)
                if process is not None:
                    processes[dump.pid] = process
        dumps = [
            dataclasses.replace(d, at=at, nonblocking=d.nonblocking or d.pid in nonblocking)
            for d in moment.dumps
        ]
        stacks = {(d.pid, d.native) for d in dumps}
        refused = moment.listed.refused if moment.listed else ()
        dumps += [d for d in refused if (d.pid, d.native) not in stacks]
        gpus: tuple[Gpu, ...] = moment.readings[-1].gpus if moment.readings else ()
        clocks = moment.listed.clocks if moment.listed else None
        return Snapshot(at, host.name, tuple(processes.values()), tuple(dumps), gpus, clocks)

    def _from_log(self, host: Host, found: Sequence[TextDump]) -> Snapshot:
        """Make a snapshot of the dumps that watchdogs wrote into a log."""
        processes = []
        for one in found:
            process = as_process(one.dump.pid, host.name, one.title)
            parts = rank_of_prefix(one.prefix)
            if process.rank is None and parts:  # the process dumps itself under its own prefix
                rank = rank_of_parts(parts)
                process = dataclasses.replace(process, role="scheduler", rank=rank)
            processes.append(process)
        at = max((one.dump.at or 0.0 for one in found), default=0.0)
        return Snapshot(at, host.name, tuple(processes), tuple(one.dump for one in found))

    def _after_death(
        self, host: Host, log: ReadLog, found: Sequence[TextDump], offset: float
    ) -> Snapshot:
        """Make a snapshot of the stacks that Python printed when it was killed.

        They do not say whose they are. It is certain only where one process printed, and the file is one
        rank's, or torch's own last words name one rank.
        """
        at = max((one.dump.at or 0.0 for one in found), default=0.0) - offset
        prefixes = {line.rank for line in log.log.lines if line.rank}
        own = {prefix for prefix in prefixes if not prefix.startswith("rank")}
        words = {
            line.rank
            for line in log.log.lines
            if line.rank.startswith("rank")
            and (event := read_marker(line.text))
            and event.marker.error
        }
        processes: tuple[Process, ...] = ()
        rank: Rank | None = None
        if len(found) == 1 and len(own) == 1 and not words:
            rank = rank_of_parts(rank_of_prefix(next(iter(own))))
        elif len(found) == 1 and len(words) == 1:
            number = int(next(iter(words))[4:])
            rank = Rank(number, tp=number) if number < self.sizes[0] else None
        if rank is not None:
            processes = (Process(found[0].dump.pid, host.name, "scheduler", "", rank),)
        elif found:
            self.notes.append(
                "the stacks printed at the end do not say of which rank they are: they tell the phase only"
            )
        return Snapshot(at, host.name, processes, tuple(one.dump for one in found))

    def _merged(self, snapshots: list[Snapshot]) -> list[Snapshot]:
        """Drop what two zips of one host both hold."""
        found: dict[tuple[str, float, tuple[int, ...]], Snapshot] = {}
        for one in snapshots:
            key = (one.host, one.at, tuple(sorted(d.pid for d in one.dumps)))
            before = found.get(key)
            if before is None or len(one.processes) > len(before.processes):
                found[key] = one
        return list(found.values())

    def _numbered(self, one: Snapshot) -> Snapshot:
        processes = tuple(with_world(process, *self.sizes) for process in one.processes)
        return dataclasses.replace(one, processes=processes)

    def _one_server(self, snapshots: Iterable[Snapshot]) -> None:
        """Refuse two servers in one scene: one rank on two hosts, or twice at one time on one host."""
        hosts: dict[tuple[int | None, int], set[str]] = defaultdict(set)
        for one in snapshots:
            pids: dict[tuple[int | None, int], int] = {}
            for process in one.processes:
                if process.rank is None or process.state in ("Z", "X"):
                    continue
                key = (process.rank.dp, process.rank.world)
                hosts[key].add(one.host)
                if pids.setdefault(key, process.pid) != process.pid or len(hosts[key]) > 1:
                    raise WorkbenchError(
                        f"{shorten(self.source)} holds several servers",
                        why=f"{process.rank} is there twice"
                        + (
                            f", on {' and '.join(sorted(hosts[key]))}"
                            if len(hosts[key]) > 1
                            else ""
                        ),
                        next_step="Give the evidence of one server.",
                    )

    # -- what all hosts tell together --------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        """Return the launch's variables: of what a launcher wrote down, the parent, or else a rank."""
        found: dict[str, str] = {}
        for role in ("scheduler", "parent"):
            for host in self.hosts:
                for moment in host.moments:
                    for process in moment.listed.processes if moment.listed else ():
                        if process.role == role:
                            found.update(process.environment)
        for host in self.hosts:
            found.update(host.environment)
        return found

    def _exits(self, snapshots: Iterable[Snapshot]) -> dict[int, int]:
        found: dict[int, int] = {}
        ranks: dict[int, int] = {}
        for one in snapshots:
            for process in one.processes:
                number = (
                    self._launch_number(process.rank) if process.rank is not None else -process.pid
                )
                ranks[-process.pid] = number
                if process.exit_code is not None:
                    found[number] = process.exit_code
        nodes = self._size("nnodes")
        for host in self.hosts:
            for log in host.logs:
                node = _whole(log.arguments.get("node-rank")) or 0
                first = node * (self.sizes[0] * self.sizes[1] // nodes) if nodes > 1 else 0
                for index, code in log.exits.items():
                    number = index + first if index >= 0 else ranks.get(index, index)
                    found.setdefault(number, code)
        return without_victims(found)

    def _launch_number(self, rank: Rank) -> int:
        """Return a rank's number among all ranks of the launch; replicas follow one another."""
        if self.replicas > 1 and rank.dp is not None:
            return rank.world + rank.dp * self.sizes[0] * self.sizes[1]
        return rank.world

    def _not_collected(self, snapshots: Iterable[Snapshot]) -> tuple[int, ...]:
        """Return the ranks of nodes from which nothing was collected; each node has equally many."""
        nodes = self._size("nnodes")
        ranks = self.sizes[0] * self.sizes[1]
        if nodes < 2 or ranks % nodes or self.replicas > 1 or ranks > MOST_RANKS:
            return ()
        each = ranks // nodes
        seen: set[int] = set()
        for host in self.hosts:
            if host.manifest and host.manifest.node_rank is not None:
                seen.add(host.manifest.node_rank)
            seen |= {
                node
                for log in host.logs
                if (node := _whole(log.arguments.get("node-rank"), zero=True)) is not None
            }
        for one in snapshots:
            seen |= {p.rank.world // each for p in one.processes if p.rank is not None}
        for host in self.hosts:
            for log in host.logs:
                for prefix in {line.rank for line in log.log.lines}:
                    parts = rank_of_prefix(prefix)
                    if parts:
                        seen.add(world_rank(parts, tp_size=self.sizes[0]) // each)
        return tuple(
            n
            for node in range(nodes)
            if node not in seen
            for n in range(node * each, node * each + each)
        )

    def _skew(self) -> dict[str, float]:
        """Return how far each host's clock is ahead of the first's.

        All ranks leave the first initialisation together, so that its end tells their clocks apart.
        """
        ends: dict[str, float] = {}
        for host in self.hosts:
            offset = (host.manifest.utc_offset or 0.0) if host.manifest else 0.0
            first: dict[str, float] = {}
            for log in host.logs:
                for line in log.log.lines:
                    if line.at is not None and line.rank and " ends." in line.text:
                        event = read_marker(line.text)
                        if event is not None and event.code == "dist_end":
                            first.setdefault(line.rank, line.at - offset)
            if first:
                ends.setdefault(host.name, max(first.values()))
        if len(ends) < 2:
            return {}
        reference = next(iter(ends.values()))
        return {name: at - reference for name, at in ends.items()}


def _apart(snapshots: list[Snapshot]) -> list[Snapshot]:
    """Give the hosts of a pile without manifests a name each.

    Two snapshots with other processes and other ranks are of two hosts, and not of one host whose ranks
    have gone.
    """
    groups: list[tuple[set[tuple[int, Rank]], list[int]]] = []
    for index, one in enumerate(snapshots):
        ranks = {(p.pid, p.rank) for p in one.processes if p.rank is not None}
        if one.host or not ranks:
            continue
        mine = [group for group in groups if group[0] & ranks]
        groups = [group for group in groups if group not in mine]
        members = [index, *(number for group in mine for number in group[1])]
        groups.append((ranks.union(*(group[0] for group in mine)), sorted(members)))
    several = [{rank for _, rank in pairs} for pairs, _ in groups]
    if len(groups) < 2 or len(set().union(*several)) < sum(map(len, several)):
        return snapshots
    found = list(snapshots)
    for number, (_, members) in enumerate(sorted(groups, key=lambda group: group[1])):
        for index in members:
            found[index] = _on_host(found[index], f"host-{number + 1}")
    return found


def _on_host(one: Snapshot, host: str) -> Snapshot:
    return dataclasses.replace(
        one,
        host=host,
        processes=tuple(dataclasses.replace(process, host=host) for process in one.processes),
        gpus=tuple(dataclasses.replace(gpu, host=host) for gpu in one.gpus),
    )


def _one_launch(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two logs that print their arguments are of two nodes of one launch."""
    if one.get("node-rank") == other.get("node-rank"):
        return False
    names = (set(one) & set(other)) - _OF_A_NODE
    # What stands for a name or a text was made on each host by itself, and says nothing of another's.
    return all(TOKEN.sub("", one[name]) == TOKEN.sub("", other[name]) for name in names)


def _another_size(one: Mapping[str, str], other: Mapping[str, str], version: str) -> str:
    """Return in what a command line and a log's arguments cannot be of one launch, or ""."""
    told = {canonical(name, version): value for name, value in other.items()}
    for name, value in one.items():
        known = canonical(name, version)
        here, there = _whole(value), _whole(told.get(known))
        if known in _SIZES and here and there and here != there:
            return f"it says {known} {there}, the process was started with {here}"
    return ""


def _whole(text: str | None, *, zero: bool = False) -> int | None:
    if text is None or not text.isdecimal() or len(text) > 6:
        return None
    number = int(text)
    return number if number or zero else None

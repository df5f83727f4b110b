"""Taking snapshots of one server and writing them as a case."""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from typing import IO, Any

from workbench.evidence.casefile import CaseWriter, SecretError
from workbench.evidence.redact import Redactor
from workbench.hang.collect.collector import (
    dumps,
    gpus,
    halted,
    known,
    logs,
    ports,
    proc,
    pyspy,
    ras,
    servers,
    stopping,
    versions,
)

_SAMPLES = 10  # between two snapshots


@dataclasses.dataclass
class Plan:
    """What to collect, and how.

    Attributes
    ----------
    pid
        Any process of the server; None where there is one server only.
    snapshots, interval
        How many, and how many seconds apart.
    native
        Whether to take native frames as well, after the last snapshot.
    log
        The server's log; by default it is looked for among its open files.
    py_spy
        The program, if it is neither next to this Python nor on the PATH.
    read_gpus
        Returns a case's ``gpus.json``, or None and why there is none.
    salt
        What pseudonyms are made with: hosts that are collected for one case share it. By default this
        host's boot id, so that two collections of one host are known to be of one.
    target
        The path that the case is moved to in the end: nothing that the server has open is replaced.
    say, wait
        Called with what is done now, and with the seconds to wait.
    """

    pid: int | None = None
    snapshots: int = 2
    interval: float = 30.0
    native: bool = False
    log: str | None = None
    py_spy: str | None = None
    timeout: float = pyspy.TIMEOUT
    read_gpus: Callable[[], tuple[dict[str, Any] | None, str]] = gpus.read
    say: Callable[[str], None] = lambda text: None
    wait: Callable[[float], None] = time.sleep
    salt: str | None = None
    tool: str = "workbench-collect"
    target: str | None = None


@dataclasses.dataclass
class Collected:
    """What was collected, in figures.

    ``stacks`` counts dumps, ``refused`` those of living processes that failed; ``py_spy`` is the version
    that was run.
    """

    host: str
    root: int
    snapshots: int = 0
    processes: int = 0
    stacks: int = 0
    refused: int = 0
    py_spy: str = ""
    interrupted: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)


def collect(out: IO[bytes], plan: Plan) -> Collected:
    """Write one host's case into an open binary file.

    Interrupted (KeyboardInterrupt), it writes what it has.

    Raises
    ------
    CollectError
        There is no such server, nothing can be known of it, or a secret of the server's would be in the
        case.
    """
    server = servers.choose(plan.pid, proc.everyone())
    collector = _Collector(out, plan, server)
    try:
        return collector.run()
    except SecretError as error:
        collector.case.abort()
        raise servers.CollectError(
            "the case was not written",
            f"a secret of the server would be in it, in {error}",
            "Report this as a fault of the workbench; the server's log can be given by hand meanwhile.",
        ) from None
    except servers.CollectError:
        collector.case.abort()
        raise


class _Collector:
    def __init__(self, out: IO[bytes], plan: Plan, server: servers.Server) -> None:
        self.plan = plan
        self.roots = server.roots
        self.pyspy = pyspy.PySpy(plan.py_spy, plan.timeout)
        self.argv = proc.arguments(server.root)
        self.seen: dict[int, int] = {}  # pid to start time: a pid may be used again
        self.files: list[logs.LogFile] = []
        self.titles: dict[int, list[str]] = {}
        self.pids: list[int] = []  # of the last snapshot
        self.taken: list[tuple[str, pyspy.Taken, bool]] = []
        self.held: list[int] = []  # descriptors of the logs
        self.ranks: list[int] = []  # of the last snapshot
        self.samples: dict[int, list[dict[str, Any]]] = {}  # since the last snapshot
        self.no_log = ""
        self.version = ""
        self.engine = servers.engine(server)
        # For the case, its notes and the pseudonyms. Threads of Python would run one by one anyway, and
        # in turns all would end late: so the first dump begins when the first process was read.
        self.lock = threading.Lock()
        name = socket.gethostname()
        boot = _boot_id()
        self.redact = Redactor(plan.salt or (f"{boot} {name}" if boot else None), (name,))
        host = self.redact.host(name)
        self.seen_secrets: set[str] = set()
        self.case = CaseWriter(
            out,
            host,
            tool=plan.tool,
            created=time.time(),
            utc_offset=float(_utc_offset()),
            node_rank=_number(servers.option(self.argv, "--node-rank")),
        )
        self.result = Collected(host, server.root)

    def run(self) -> Collected:
        """Collect, and close the case."""
        self.check_target()
        if self.pyspy.path is None:
            what, remedy = pyspy.ABSENT
            self.note(f"{what}: there are no stacks. {remedy.rstrip('.')}")
        self.note(self.pyspy.found.warning)
        self.result.py_spy = self.pyspy.found.version
        for person in known.people(self.roots):
            self.redact.user(person)
        try:
            for number in range(1, self.plan.snapshots + 1):
                if number > 1:
                    self.plan.say(f"waiting {self.plan.interval:g} s for snapshot {number}")
                    self.wait()
                last = number == self.plan.snapshots
                self.snapshot(number, native=self.plan.native and last)
        except KeyboardInterrupt:
            stopping.settle()
            self.result.interrupted = True
            self.note(
                f"interrupted after {self.result.snapshots} of {self.plan.snapshots} snapshots"
            )
        stopping.settle()
        self.finish()
        return self.result

    def wait(self) -> None:
        """Wait for the next snapshot, and sample the ranks' main threads ten times meanwhile."""
        parts = _SAMPLES + 1 if self.plan.interval >= 1 else 1
        for part in range(parts):
            self.plan.wait(self.plan.interval / parts)
            if part < parts - 1:
                self.sample()

    def sample(self) -> None:
        """Read what each rank's main thread does now: from /proc alone, nothing is paused."""
        for pid in self.ranks:
            found = proc.sample(pid, self.seen.get(pid, -1))
            if found is not None:
                self.samples.setdefault(pid, []).append(found)

    def note(self, text: str) -> None:
        """Keep a remark for the reader, once."""
        if text and text not in self.result.notes:
            self.result.notes.append(text)

    def members(self, processes: dict[int, proc.Stat]) -> list[int]:
        """Return the server's processes now: of the first snapshots, too, where the parent has ended."""
        known = {
            p for p, began in self.seen.items() if p in processes and processes[p].started == began
        }
        return [p for p in proc.family({*self.roots, *known}, processes) if p != os.getpid()]

    def snapshot(self, number: int, *, native: bool) -> None:
        """Take one snapshot and add it to the case."""
        at, clocks, processes = time.time(), proc.clocks(), proc.everyone()
        pids = self.pids = self.members(processes)
        for pid in pids:
            if self.seen.get(pid) != processes[pid].started:
                self.titles.pop(pid, None)  # a pid that is used again
            self.seen[pid] = processes[pid].started
        self.learn(pids)
        readings: dict[str, Any] = {}
        reader = threading.Thread(target=self.read, args=(readings,), daemon=True)
        reader.start()
        records: dict[int, dict[str, Any]] = {}
        interrupted = None
        try:
            self.look_at_all(number, pids, processes, records)
            if native:
                schedulers = [pid for pid, one in records.items() if one["role"] == "scheduler"]
                self.plan.say(f"snapshot {number}: native stacks of {len(schedulers)} processes")
                self.pyspy.each(
                    lambda pid: self.add_stacks(number, records[pid], native=True), schedulers
                )
            reader.join(2 * gpus.TIMEOUT + ras.TIMEOUT + 1)
        except KeyboardInterrupt as error:
            stopping.settle()
            interrupted = error
        with stopping.shielded():
            self.keep(number, at, clocks, records, readings, processes)
        if interrupted is not None:
            raise interrupted

    def keep(
        self,
        number: int,
        at: float,
        clocks: dict[str, float],
        records: dict[int, dict[str, Any]],
        readings: dict[str, Any],
        processes: dict[int, proc.Stat],
    ) -> None:
        """Add what was taken in a snapshot to the case."""
        self.engine = self.engine or servers.engine(servers.Server(()), self.titles.values())
        self.keep_stacks()
        self.ranks = [pid for pid, one in records.items() if one["role"] == "scheduler"]
        for pid, taken in self.samples.items():
            if pid in records:
                records[pid]["samples"] = taken
        self.samples = {}
        listed = [records[pid] for pid in sorted(records)]
        folder = self.case.add_snapshot(number, at, listed, clocks)
        self.add_readings(folder, readings)
        if not self.files:
            self.find_logs(self.pids, processes)
        self.version = self.version or versions.by_interpreter(self.roots[0], self.engine)
        self.result.snapshots += 1
        self.result.processes = len(records)

    def learn(self, pids: list[int]) -> None:
        """Find out which secrets these processes hold before anything is written."""
        found = {one for pid in pids for one in known.secrets_of(pid)} - self.seen_secrets
        self.seen_secrets |= found
        for one in found:
            self.redact.secret(one)
        self.case.forbid(filter(known.is_searched, found))

    def look_at_all(
        self,
        number: int,
        pids: list[int],
        processes: dict[int, proc.Stat],
        records: dict[int, dict[str, Any]],
    ) -> None:
        """Add what /proc says of each process to `records`, and at that moment take its stacks.

        One worker does all of this for a process, so that every processor has work from the first dump
        to the last.
        """

        def look(pid: int) -> None:
            with self.lock:
                record = self.facts(pid, processes)
            if pid in dumped and record.get("status") in halted.HALTED:
                since = halted.watch(pid, lambda: self.pyspy.interrupted)
                record = {**record, **since} if since else {}
            if record:  # it did not end meanwhile
                records[pid] = record
            if record and pid in dumped:
                self.add_stacks(number, record, native=False)

        dumped = {pid for pid in pids if self.is_dumped(pid)}
        self.plan.say(f"snapshot {number}: {len(pids)} processes, stacks of {len(dumped)}")
        # First those that may end in a moment (compilers); of the others those that take longest.
        for pid in pids:
            if pid not in dumped:
                look(pid)
        self.pyspy.each(look, sorted(dumped, key=lambda pid: -processes[pid].threads))

    def find_logs(self, pids: list[int], processes: dict[int, proc.Stat]) -> None:
        """Find the logs and hold them open: of a server that ends meanwhile, they are what remains."""
        found, self.no_log = logs.find(pids, self.roots, processes)
        self.check_target()  # the server may have opened it meanwhile
        for file in found:
            try:
                held = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                self.note(f"a log could not be read: {error.strerror}")
                continue
            self.held.append(held)
            self.files.append(file._replace(path=f"{proc.PROC}/self/fd/{held}"))

    def check_target(self) -> None:
        """Refuse to replace a file that the server, or who copies its output to a log, has open."""
        if self.plan.target is None:
            return
        processes = proc.everyone()
        pids = self.members(processes)
        found, _ = logs.find(pids, self.roots, processes)
        paths = [*(file.path for file in found), *filter(None, [self.plan.log])]
        opened = logs.identities(paths + logs.open_paths(pids))
        if logs.identities([self.plan.target]) & opened:
            raise servers.CollectError(
                f"cannot write {self.plan.target}",
                "the server has this file open, or it is the log that was given",
                "Choose a path elsewhere; what is examined is never changed.",
            )

    def facts(self, pid: int, processes: dict[int, proc.Stat]) -> dict[str, Any]:
        """Return what /proc says of a process; nothing where it has ended."""
        role, argv = self.role(pid), self.titles[pid]
        wanted = role in servers.DUMPED
        record = proc.facts(pid, processes, threads=wanted)
        if not record:
            return {}
        record["role"] = role
        if record["status"] == "Z" and argv:
            record["cmd"] = " ".join(argv)  # the dead have no command line: who it was, we saw
            record.pop("argv", None)
        if "argv" in record:
            record["argv"] = self.redact.arguments(record["argv"])
            record["cmd"] = " ".join(record["argv"])[:2000] or record["cmd"]
        elif not proc.is_title([record["cmd"]]):
            record["cmd"] = " ".join(self.redact.arguments(record["cmd"].split()))
        if "lock_files" in record:
            record["lock_files"] = [self.redact.path(path) for path in record["lock_files"]]
        if wanted:
            record["environment"] = self.redact.environment(proc.environment(pid))
        return record

    def role(self, pid: int) -> str:
        """Return what a process does, and remember the name by which that is known."""
        argv = self.titles[pid] = proc.arguments(pid) or self.titles.get(pid, [])
        return servers.role(pid, argv, self.roots)

    def is_dumped(self, pid: int) -> bool:
        """Whether a process may have stacks that matter; of any other only what runs Python."""
        role = self.role(pid)
        if role != "other":
            return role in servers.DUMPED
        return any("python" in line for line in proc.read(pid, "maps").splitlines()[:400])

    def add_stacks(self, number: int, record: dict[str, Any], *, native: bool) -> None:
        """Dump a process, and say in its record how it went."""
        pid = record["pid"]
        taken = self.pyspy.dump(pid, native=native)
        record["native" if native else "py"] = taken.record
        with self.lock:
            name = f"snapshot-{number}/{'pyspy-native' if native else 'pyspy'}-{pid}.json"
            self.taken.append((name, taken, record["status"] != "Z"))

    def keep_stacks(self) -> None:
        """Add the dumps to the case; they are redacted once all were taken, close together in time."""
        for name, taken, alive in self.taken:
            if taken.record.get("resumed"):
                self.note(
                    f"process {taken.pid} stayed stopped when py-spy was killed, and was let run on"
                )
            for field in ("stderr", "refusal"):
                if isinstance(taken.record.get(field), str):
                    taken.record[field] = self.redact.log(taken.record[field])
            stacks = self.stacks(taken.data) if taken.data is not None else ""
            if stacks:
                self.case.add(name, stacks)
                self.result.stacks += "native" not in name
                self.version = self.version or versions.by_frames(
                    taken.pid, taken.data or b"", self.engine
                )
            elif taken.data is None and "native" not in name and alive:
                self.result.refused += 1
        self.taken.clear()

    def stacks(self, dump: bytes) -> str:
        """Return a dump's stacks as py-spy writes them; nothing where it is damaged."""
        try:
            return dumps.redacted(dump, self.redact)
        except (ValueError, RecursionError):
            self.note("a dump of py-spy's was no JSON, and was left out")
            return ""

    def read(self, readings: dict[str, Any]) -> None:
        """Read the GPUs and ask NCCL, beside the dumps: either may wait for a driver or a peer."""
        readings["gpus"] = self.plan.read_gpus()
        readings["ras"] = self.ask_nccl()

    def add_readings(self, folder: str, readings: dict[str, Any]) -> None:
        """Add the readings of the GPUs and NCCL's answer, or why there are none."""
        gpu, why = readings.get("gpus") or (
            None,
            "the GPUs were not read: the driver did not answer",
        )
        self.note(self.redact.line(why))
        if gpu is not None:
            for one in gpu["gpus"]:
                one["uuid"] = self.redact.token("value", str(one.get("uuid") or ""))
                one["name"] = self.redact.line(str(one.get("name") or ""))
            self.case.add_json(f"{folder}/gpus.json", gpu)
        answer, why = readings.get("ras") or (None, "")
        self.note(self.redact.line(why))
        if answer is not None:
            if ras.is_json(answer) or ras.is_text(answer):
                self.case.add_json(f"{folder}/ras.json", ras.kept(answer, self.redact.host))
            else:
                self.case.add(
                    f"{folder}/ras.txt", self.redact.log(answer.decode("utf-8", "replace"))
                )

    def finish(self) -> None:
        """Add the log, the port and the version; close the case."""
        self.plan.say("reading the log")
        if self.plan.log is not None:
            pids = tuple(pid for file in self.files for pid in file.pids)
            name = os.path.basename(self.plan.log) or "server.log"
            self.files = [logs.LogFile(name, self.plan.log, pids)]
        for file in self.named():
            try:
                self.case.add_log(file.name, file.path, file.pids, self.redact.log)
            except OSError as error:
                self.note(f"the log {file.name} could not be read: {error.strerror}")
        if not self.files:
            self.note(self.redact.line(self.no_log))
        self.case.manifest.update(
            engine=self.engine or "sglang",
            version=self.version,
            port_open=ports.is_open(self.roots[0], self.argv, self.engine),
            py_spy=self.result.py_spy,
            notes=[self.redact.text(note) for note in self.result.notes],
        )
        self.case.close()
        for held in self.held:
            os.close(held)

    def named(self) -> list[logs.LogFile]:
        """Return the logs under names that tell a rank, and no host and nobody."""
        found: list[logs.LogFile] = []
        for file in self.files:
            name = self.redact.path(file.name)
            if not re.fullmatch(r"[\w.+-]{1,80}", name) or any(one.name == name for one in found):
                name = f"server-{len(found) + 1}.log" if found else "server.log"
            found.append(file._replace(name=name))
        return found

    def ask_nccl(self) -> tuple[bytes | None, str]:
        """Ask NCCL, where a rank on this host and in this network uses it."""
        with self.lock:
            pids = [pid for pid in self.seen if "libnccl" in proc.read(pid, "maps")]
        mine = proc.namespace("self", "net")
        if not pids:
            return None, ""
        if any(proc.namespace(pid, "net") not in ("", mine) for pid in pids):
            return None, "NCCL RAS was not asked: the server has a network of its own (a container)"
        return ras.ask(proc.environment(self.roots[0]))


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def _utc_offset() -> int:
    return time.localtime().tm_gmtoff


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None

"""How does a site get its Kafka broker?

`KafkaBroker` runs one of our own: a single process on this machine, broker and controller in one, that keeps
its records in a folder over restarts and kills. It ends with the process that started it, or goes on and is taken
over by the next one. `ExternalBroker` is one of the user's, which only has to answer. What is in their topics:
`bind.topics`.

    HW4201   the broker ended before it was ready, or cannot be started
    HW4202   nothing answers at the address
    HW4203   the port is in use, or the host is not this machine
    HW4204   another process runs a broker in this folder
    HW4208   others could reach the broker, and it would ask nobody for a password
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.bind.adopted import UNKNOWN_CODE, Adopted, find_leader, started_at
from headwater.bind.box import Box
from headwater.bind.broker_files import Access, broker_files, is_loopback
from headwater.bind.broker_ports import choose_ports, release_ports, remembered_ports
from headwater.bind.jars import Jars
from headwater.bind.java import Child, java
from headwater.bind.keyring import Credentials, rdkafka_settings, write_private
from headwater.bind.topics import client_settings, reason
from headwater.errors import BindError

__all__ = ["BOOTSTRAP", "Access", "ExternalBroker", "KafkaBroker"]

APART_PORTS = (9092, 9094)  # of a site with a network of its own; from outside it is managed on 9093
BOOTSTRAP = "bootstrap.checkpoint"  # of the folder 'data': the features that a new broker begins with
META = "version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={directory}\n"
PAUSE_S = 0.02  # between two questions to a broker
LAST_LINES = 12  # of a log, in a message


class KafkaBroker:
    """A broker of our own for one site, on this machine; it ends with this process unless it is detached.

    In its folder: 'data', 'logs', the settings, the ports and the process id. A broker that is started again
    on the same folder has the same records and, if it is free, the same port. A detached one goes on when this
    process ends; the next one adopts it. It has clients elsewhere, so it keeps its port whatever happens.

    Beyond loopback it speaks TLS and asks clients for a password (`access`); on loopback it does neither. A site of
    a testbed needs no password either: its network is private, and nothing outside this machine reaches it.
    """

    def __init__(
        self,
        site: str,
        folder: Path,
        jars: Jars,
        *,
        port: int | None = None,
        host: str = "127.0.0.1",
        heap_mb: int = 256,
        retention_s: float = 7 * 86400.0,
        flags: Sequence[str] = (),
        bootstrap: Path | None = None,
        box: Box | None = None,
        access: Access | None = None,
        is_detached: bool = False,
    ) -> None:
        """Describe the broker; `start` starts it.

        Args:
            site: the site that it belongs to.
            folder: what it keeps lives here; made when it is not there.
            jars: from `bind.jars.ensure`.
            port: where clients reach it; None or 0: a free one, the same again next time.
            host: the name or address that it listens on and that clients reach it by.
            heap_mb: memory for Java's objects; the process takes some 100 MB more.
            retention_s: how long a record is kept.
            flags: more options of Java.
            bootstrap: the file of this name that Kafka's own tool wrote for another broker of the same version;
                with it, preparing a new folder takes no second JVM.
            box: what stands for the site, instead of `host` and `port`.
            access: whom it lets in when it listens beyond loopback.
            is_detached: whether it goes on when this process ends.
        """
        self.site = site
        self._folder = folder.absolute()
        self._jars = jars
        self._fixed_port = port or None
        self._box = box or Box(address=host, manage=host)
        self._host = self._box.address
        self._heap_mb = heap_mb
        self._retention_s = retention_s
        self._flags = tuple(flags)
        self._bootstrap = bootstrap
        self._is_detached = is_detached
        self._is_open = not self._box.is_apart and not is_loopback(self._host)
        self._access = access if self._is_open else None
        self._ports: tuple[int, int] | None = None  # for clients, for the controller
        self._child: Child | Adopted | None = None
        self._log_before_bytes = 0  # what earlier runs left in the log

    @property
    def address(self) -> str:
        """'host:port' for clients here; a restart changes it only if some other program has taken the port."""
        return f"{self._box.manage}:{self._port + (1 if self._box.is_apart else 0)}"

    @property
    def address_between(self) -> str:
        """'host:port' for clients at the sites; the same as `address` unless the site has a network of its own."""
        return f"{self._host}:{self._port}"

    @property
    def credentials(self) -> Credentials | None:
        """What clients need; None: nothing, it is not reached from outside."""
        return None if self._access is None else self._access.credentials

    @property
    def _port(self) -> int:
        if self._ports is None and self._is_detached and not self._box.is_apart:
            # Not asked whether it is free: it may be this broker that has it, started by an earlier process.
            known = self._fixed_port or next(iter(remembered_ports(self._folder) or ()), None)
            if known is not None:
                return known
        return (self._ports or self._choose_ports())[0]

    @property
    def pid(self) -> int | None:
        """The process id, while it runs."""
        return self._child.pid if self._child is not None and self.is_alive else None

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._child is not None and self._child.exit_code is None

    @property
    def memory_bytes(self) -> int | None:
        """Memory that its process holds; None when it does not run."""
        with contextlib.suppress(psutil.Error):
            return int(psutil.Process(self.pid).memory_info().rss) if self.pid is not None else None
        return None

    @property
    def cpu_s(self) -> float | None:
        """Processor time that its process has used; None when it does not run."""
        with contextlib.suppress(psutil.Error):
            used = psutil.Process(self.pid).cpu_times() if self.pid is not None else None
            return None if used is None else float(used.user + used.system)
        return None

    def adopt(self) -> bool:
        """Take over the detached broker that runs in this folder; return whether there is one that is as described.

        One with other settings is not taken over: `start` ends it and starts it again with those described.
        """
        if self.is_alive:
            return True
        if not self._is_detached:
            return False
        with contextlib.suppress(OSError):
            found = self._running()
            self._ports = APART_PORTS if self._box.is_apart else remembered_ports(self._folder)
            if found is not None and self._ports is not None and self._fixed_port in (None, self._ports[0]):
                files = {self._folder / name: content for name, content in self._files().items()}
                if all(file.read_bytes() == content for file, content in files.items()):
                    self._child = found
                    self._write_pid()
                    return True
        self._ports = None
        return False

    def start(self) -> None:
        """Start it unless it runs; `wait_ready` says when it can be used.

        Raises:
            BindError: HW4101 or HW4102 no Java; HW4201 the folder or Java refuses; HW4203 the port that was asked for,
                or that a detached broker has always had, is in use; HW4204 another process runs a broker in this
                folder; HW4208 others could reach it and it has no password.
        """
        if self.is_alive or self.adopt():
            return
        program = java()
        try:
            self._folder.joinpath("logs").mkdir(parents=True, exist_ok=True)
            self._end_leftover()
            self._choose_ports()
            if self._is_open and self._access is None:
                raise BindError(
                    f"HW4208 the broker of site '{self.site}' would let everybody in who reaches {self._host}; give it "
                    "a password and a certificate, or let it listen on 127.0.0.1 if only this machine needs to reach it"
                )
            for name, content in self._files().items():
                write_private(self._folder / name, content)
            self._format(program)
            flags = [f"-Xmx{self._heap_mb}m", f"-Xms{min(self._heap_mb, 128)}m", "-XX:+ExitOnOutOfMemoryError"]
            log = self._folder / "logs" / "broker.log"
            self._log_before_bytes = log.stat().st_size if log.exists() else 0
            with self._folder.joinpath("logs", "console.log").open("wb") as console:
                command = [*self._java(program), *flags, *self._flags, self._mark, "kafka.Kafka", "broker.properties"]
                command = [*self._box.enter, *command]
                self._child = Child(command, self._folder, console, is_bound=not self._is_detached)
            self._write_pid()
        except OSError as error:
            raise BindError(
                f"HW4201 the broker of site '{self.site}' cannot be started: {error.strerror or error} "
                f"({error.filename or self._folder}); check that the folder can be written and the disk has room"
            ) from error

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return as soon as it serves clients.

        Raises:
            BindError: HW4201 it ended, with the last lines of its log; HW4202 it is not ready in time.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            if self._child is None or not self.is_alive:
                raise BindError(f"HW4201 the broker of site '{self.site}' {self._how_ended()}")
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise BindError(
                    f"HW4202 the broker of site '{self.site}' at {self.address} is not ready after {timeout_s:g} s; "
                    f"its log is in '{self._folder / 'logs'}'; this machine may be too busy: give it more time. "
                    f"{self._last_lines()}"
                )
            if _listens(self.address):
                with contextlib.suppress(KafkaException), AdminClient(self._client_settings()) as admin:
                    metadata = admin.list_topics(timeout=min(left_s, 1.0))
                    if metadata.brokers and metadata.cluster_id == self._cluster_id:
                        release_ports(self._folder)
                        return
            self._child.wait(PAUSE_S)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop it in good order; kill it if that takes longer than this. Does nothing when it does not run."""
        self._child = self._child or self._unadopted()
        if self._child is not None and self.is_alive:
            self._child.signal(signal.SIGTERM)
            if not self._child.wait(timeout_s):
                self.kill()
        release_ports(self._folder)
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill it; its records stay."""
        self._child = self._child or self._unadopted()
        if self._child is not None and self.is_alive:
            self._child.signal(signal.SIGKILL)
            self._child.wait(10.0)

    @property
    def _pid_file(self) -> Path:
        return self._folder / "pid"  # its process id, that of the process that started it, and when it began

    @property
    def _mark(self) -> str:
        """What tells the process of this broker from all others, in its command line."""
        return f"-Dheadwater.broker={self._folder}"

    @property
    def _cluster_id(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(f"headwater {self.site}".encode()).digest()[:16]).decode()[:22]

    def _java(self, program: Path) -> list[str]:
        """Return how any of Kafka's programs is run, in the folder: paths inside settings would need escaping."""
        return [
            str(program),
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:-UsePerfData",
            "-Dlog4j2.configurationFile=log4j2.properties",
            "-cp",
            str(self._jars.kafka / "*"),
        ]

    def _files(self) -> dict[str, bytes]:
        """Return what Kafka is to read; clients come from the sites, and from outside the testbed if there is one."""
        assert self._ports is not None
        listeners = {"CLIENT": self.address_between} | ({"MANAGE": self.address} if self._box.is_apart else {})
        return broker_files(listeners, self._ports[1], self._retention_s, self._access)

    def _client_settings(self) -> dict[str, Any]:
        return client_settings(self.address) | rdkafka_settings(self.credentials)

    def _format(self, program: Path) -> None:
        data = self._folder / "data"
        if data.joinpath("meta.properties").exists():  # written last
            return
        if self._bootstrap is not None and self._bootstrap.exists():
            data.mkdir(exist_ok=True)
            shutil.copyfile(self._bootstrap, data / BOOTSTRAP)
            passing = data / "meta.properties.new"
            passing.write_text(META.format(cluster=self._cluster_id, directory=_new_id()), "ascii")
            passing.replace(data / "meta.properties")
            return
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted", "--config", "broker.properties"]
        command = [*self._java(program), "-Xmx64m", *tool, f"--cluster-id={self._cluster_id}"]
        try:
            done = subprocess.run(
                command, cwd=self._folder, capture_output=True, text=True, errors="replace", timeout=120, check=False
            )
            why = done.stdout + done.stderr if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = "it took more than 120 s"
        if why:
            raise BindError(
                f"HW4201 the folder '{self._folder / 'data'}' of site '{self.site}' could not be prepared for a "
                f"broker; check that it can be written and the disk has room. It was said: {why.strip()[-500:]}"
            )

    def _choose_ports(self) -> tuple[int, int]:
        """Return the ports for clients and for the controller, free when looked at."""
        if self._box.is_apart:
            self._ports = APART_PORTS
        else:
            self._ports = choose_ports(self._folder, self.site, self._host, self._fixed_port, is_kept=self._is_detached)
        return self._ports

    def _write_pid(self) -> None:
        assert self._child is not None
        pid = self._child.pid
        self._pid_file.write_text(f"{pid} {os.getpid()} {started_at(pid) or 0.0}\n", "ascii")

    def _running(self) -> Adopted | None:
        """Return the broker that runs in this folder, whoever started it."""
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            pid, _, *began = self._pid_file.read_text("ascii").split()
            found = started_at(int(pid))
            if found is not None and began == [str(found)] and self._mark in psutil.Process(int(pid)).cmdline():
                return Adopted(int(pid), found)
        # Whoever started it may have been killed before it could write down the number.
        return find_leader(lambda command: self._mark in command) if self._is_detached else None

    def _unadopted(self) -> Adopted | None:
        return self._running() if self._is_detached else None

    def _end_leftover(self) -> None:
        """End a broker in this folder that has lost its owner; refuse to take one from an owner that lives.

        A detached one has no owner: it belongs to whoever starts it next.
        """
        if self._is_detached:
            self._child = None
            self.stop()
            self._child = None
            return
        try:
            pid, owner = map(int, self._pid_file.read_text("ascii").split()[:2])
            process = psutil.Process(pid)
            if self._mark not in process.cmdline():
                return  # the number belongs to some other program now
            if process.ppid() == owner:
                raise BindError(
                    f"HW4204 a broker already runs in '{self._folder}': process {pid}, started by process {owner}; "
                    f"stop process {owner}, or give site '{self.site}' another folder"
                )
            process.terminate()
            if not _has_ended(process, 5.0):
                process.kill()
                _has_ended(process, 5.0)
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return
        except psutil.Error as error:
            raise BindError(
                f"HW4204 a broker of an earlier run is still in '{self._folder}': process {pid}, and it cannot be "
                f"ended ({error}); end it, then start again"
            ) from error

    def _how_ended(self) -> str:
        if self._child is None:
            return "has not been started; call start() first"
        code = self._child.exit_code
        return (
            f"ended {'' if code == UNKNOWN_CODE else f'with exit code {code} '}before it was ready; "
            f"its log is in '{self._folder / 'logs'}'; start it again when what it says is mended. {self._last_lines()}"
        )

    def _last_lines(self) -> str:
        """Return the end of what the broker said, from its log or, if it came to no log, from its output."""
        for name, before_bytes in (("broker.log", self._log_before_bytes), ("console.log", 0)):
            with contextlib.suppress(OSError):
                said = self._folder.joinpath("logs", name).read_bytes()
                text = said[before_bytes if before_bytes < len(said) else 0 :].decode("utf-8", "replace")
                lines = [line for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
                if lines:
                    return "It said last:\n" + "\n".join(lines[-LAST_LINES:])
        return "It said nothing."


class ExternalBroker:
    """A broker of the user's: it is there or not, and is neither started nor stopped."""

    pid: int | None = None
    memory_bytes: int | None = None
    cpu_s: float | None = None

    def __init__(self, site: str, address: str) -> None:
        """Name the site, and the address as clients use it: 'host:port', or several with commas."""
        self.site = site
        self.address = self.address_between = address

    @property
    def is_alive(self) -> bool:
        """Whether it answers, asked within 2 s."""
        try:
            self.wait_ready(2.0)
        except BindError:
            return False
        return True

    def start(self) -> None:
        """Do nothing."""

    def stop(self, timeout_s: float = 10.0) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Return as soon as it answers.

        Raises:
            BindError: HW4202 it does not in time.
        """
        try:
            with AdminClient(client_settings(self.address)) as admin:
                admin.list_topics(timeout=timeout_s)
        except KafkaException as error:
            raise BindError(
                f"HW4202 the broker of site '{self.site}' at {self.address} does not answer within {timeout_s:g} s "
                f"({reason(error)}); check the address, that it runs, and that this machine may reach it"
            ) from error


def _has_ended(process: psutil.Process, timeout_s: float) -> bool:
    """Return whether it has, after waiting for that at most so long; nobody may be there to bury an orphan."""
    try:
        process.wait(timeout_s)
    except psutil.TimeoutExpired:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def _new_id() -> str:
    """Return an id as Kafka makes them: 16 random bytes in base64, without a dash in front."""
    while True:
        found = base64.urlsafe_b64encode(os.urandom(16)).decode()[:22]
        if not found.startswith("-"):
            return found


def _listens(address: str) -> bool:
    try:
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=1.0).close()
    except OSError:
        return False
    return True

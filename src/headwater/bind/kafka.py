"""How does a site get its Kafka broker?

`KafkaBroker` runs one of our own: a single process on this machine, broker and controller in one, that keeps
its records in a folder over restarts and kills. `ExternalBroker` is one of the user's, which only has to
answer. What is in their topics: `bind.topics`.

    HW4201   the broker ended before it was ready, or cannot be started
    HW4202   nothing answers at the address
    HW4203   the port is in use, or the host is not this machine
    HW4204   another process runs a broker in this folder
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headwater.bind.box import Box
from headwater.bind.jars import Jars
from headwater.bind.java import Child, java
from headwater.bind.topics import client_settings, reason
from headwater.errors import BindError

__all__ = ["BOOTSTRAP", "ExternalBroker", "KafkaBroker"]

LARGEST_RECORD_BYTES = 10 * 1024 * 1024
# Below the ports that systems give to outgoing connections: a client that tries to reach a broker that is down
# could be given the broker's own port, be connected to itself, and keep the broker from coming back.
PORTS = range(20_000, 32_000)
APART_PORTS = (9092, 9094)  # of a site with a network of its own; from outside it is managed on 9093
BOOTSTRAP = "bootstrap.checkpoint"  # of the folder 'data': the features that a new broker begins with
META = "version=1\ncluster.id={cluster}\nnode.id=1\ndirectory.id={directory}\n"
PAUSE_S = 0.02  # between two questions to a broker
LAST_LINES = 12  # of a log, in a message

SETTINGS = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{controller_port}}
listeners={{clients}},CONTROLLER://127.0.0.1:{{controller_port}}
advertised.listeners={{clients}}
listener.security.protocol.map=CLIENT:PLAINTEXT,MANAGE:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENT
controller.listener.names=CONTROLLER
log.dirs=data

# back within 3 s after a kill; 12 s with the defaults
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200

# a source may be fed before anyone has asked for its topic
auto.create.topics.enable=true
num.partitions=1
default.replication.factor=1
min.insync.replicas=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0

# as large as the system finds right: with 100 kB, the default, a link of 100 Mbit/s and 80 ms carries 5 Mbit/s
socket.send.buffer.bytes=-1
socket.receive.buffer.bytes=-1

message.max.bytes={LARGEST_RECORD_BYTES}
replica.fetch.max.bytes={LARGEST_RECORD_BYTES}
# a site's clock may be wrong; its records are taken nevertheless
log.message.timestamp.after.max.ms=9223372036854775807

log.retention.ms={{retention_ms}}
# small segments: what has outlived its time goes sooner, and less has to be read again after a kill
log.segment.bytes=134217728
log.index.size.max.bytes=1048576
log.cleaner.dedupe.buffer.size=2097152

# few threads: many sites are small, and a test puts many on one machine
num.network.threads=2
num.io.threads=4
background.threads=2
# no empty record into the controller's log twice a second: that wears out a memory card
metadata.max.idle.interval.ms=0
"""

LOGGING = """\
status=error
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName=logs/broker.log
appender.file.filePattern=logs/broker.log.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=%d{yyyy-MM-dd'T'HH:mm:ss.SSSXXX} %p %m (%c{1})%n
appender.file.policies.type=Policies
appender.file.policies.size.type=SizeBasedTriggeringPolicy
appender.file.policies.size.size=5MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=2
rootLogger.level=warn
rootLogger.appenderRef.file.ref=file
"""


class KafkaBroker:
    """A broker of our own for one site, on this machine; it ends with this process.

    In its folder: 'data', 'logs', the settings, the ports and the process id. A broker that is started again
    on the same folder has the same records and, if it is free, the same port.
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
        self._ports: tuple[int, int] | None = None  # for clients, for the controller
        self._child: Child | None = None
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
    def _port(self) -> int:
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

    def start(self) -> None:
        """Start it unless it runs; `wait_ready` says when it can be used.

        Raises:
            BindError: HW4101 or HW4102 no Java; HW4201 the folder or Java refuses; HW4203 the port that was asked for
                is in use; HW4204 another process runs a broker in this folder.
        """
        if self.is_alive:
            return
        program = java()
        try:
            self._folder.joinpath("logs").mkdir(parents=True, exist_ok=True)
            self._end_leftover()
            _, controller_port = self._choose_ports()
            settings = SETTINGS.format(
                clients=self._clients(),
                controller_port=controller_port,
                retention_ms=int(self._retention_s * 1000),
            )
            self._folder.joinpath("broker.properties").write_text(settings, "ascii")
            self._folder.joinpath("log4j2.properties").write_text(LOGGING, "ascii")
            self._format(program)
            flags = [f"-Xmx{self._heap_mb}m", f"-Xms{min(self._heap_mb, 128)}m", "-XX:+ExitOnOutOfMemoryError"]
            log = self._folder / "logs" / "broker.log"
            self._log_before_bytes = log.stat().st_size if log.exists() else 0
            with self._folder.joinpath("logs", "console.log").open("wb") as console:
                command = [*self._java(program), *flags, *self._flags, self._mark, "kafka.Kafka", "broker.properties"]
                self._child = Child([*self._box.enter, *command], self._folder, console)
            self._pid_file.write_text(f"{self._child.pid} {os.getpid()}\n", "ascii")
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
                with contextlib.suppress(KafkaException), AdminClient(client_settings(self.address)) as admin:
                    metadata = admin.list_topics(timeout=min(left_s, 1.0))
                    if metadata.brokers and metadata.cluster_id == self._cluster_id:
                        return
            self._child.wait(PAUSE_S)

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop it in good order; kill it if that takes longer than this. Does nothing when it does not run."""
        if self._child is not None and self.is_alive:
            self._child.signal(signal.SIGTERM)
            if not self._child.wait(timeout_s):
                self.kill()
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill it; its records stay."""
        if self._child is not None and self.is_alive:
            self._child.signal(signal.SIGKILL)
            self._child.wait(10.0)

    @property
    def _pid_file(self) -> Path:
        return self._folder / "pid"  # its process id, and that of the process that started it

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

    def _clients(self) -> str:
        """Return where clients are listened to: from the sites, and from outside the testbed if there is one."""
        return f"CLIENT://{self.address_between}" + (f",MANAGE://{self.address}" if self._box.is_apart else "")

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
        """Return the ports for clients and for the controller, free when looked at, and remember them."""
        if self._box.is_apart:
            self._ports = APART_PORTS
            return self._ports
        file = self._folder / "ports.json"
        try:
            before = json.loads(file.read_text("ascii"))
            wishes = [int(before["client"]), int(before["controller"])]
        except (OSError, ValueError, KeyError, TypeError):
            wishes = []
        if self._fixed_port is not None:
            if not _is_free(self._host, self._fixed_port):
                raise BindError(
                    f"HW4203 port {self._fixed_port} of {self._host}, asked for by the broker of site '{self.site}', "
                    "is in use by another program or may not be used; name another port, or none to get a free one"
                )
            wishes[:1] = [self._fixed_port]
        elif not _is_free(self._host, 0):
            raise BindError(
                f"HW4203 the broker of site '{self.site}' cannot listen on '{self._host}': that is no address of this "
                "machine; name one, or 127.0.0.1 if only this machine needs to reach it"
            )
        first = int.from_bytes(hashlib.sha256(str(self._folder).encode()).digest()[:4], "big") % len(PORTS)
        others = (PORTS[(first + step) % len(PORTS)] for step in range(len(PORTS)))
        port = next(iter(wishes[:1]), None)
        if port is None or not _is_free(self._host, port):
            port = next(other for other in others if _is_free(self._host, other))
        controller = next(iter(wishes[1:]), None)
        if controller in (None, port) or not _is_free("127.0.0.1", controller):
            controller = next(other for other in others if other != port and _is_free("127.0.0.1", other))
        if (port, controller) != tuple(wishes):
            self._folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps({"client": port, "controller": controller}), "ascii")
        self._ports = (port, controller)
        return self._ports

    def _end_leftover(self) -> None:
        """End a broker in this folder that has lost its owner; refuse to take one from an owner that lives."""
        try:
            pid, owner = map(int, self._pid_file.read_text("ascii").split())
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
        return (
            f"ended with exit code {self._child.exit_code} before it was ready; "
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


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Java does: closing connections do not count
        try:
            probe.bind((host, port))
        except OSError:
            return False
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

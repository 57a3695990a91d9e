"""What does Kafka read in a broker's folder?

`broker_files` gives the settings of a broker of our own, how it logs and, if it asks its clients for a password, its
key and whom it trusts. They hold secrets and are for the broker's user alone. Paths in them are relative to the
folder: others would need escaping. Who writes them and starts the broker: `bind.kafka`.

    HW4208   a broker that others can reach asks nobody for a password, or its password cannot be used
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.bind.keyring import Credentials, jaas
from headwater.errors import BindError

__all__ = ["Access", "broker_files", "is_loopback"]

LARGEST_RECORD_BYTES = 10 * 1024 * 1024
NAME = re.compile(r"[A-Za-z0-9_]{1,64}")  # of a user, which is a part of a setting's name
KEYSTORE, TRUSTSTORE = "keystore.pem", "truststore.pem"

SETTINGS = f"""\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{{controller_port}}
listeners={{clients}},CONTROLLER://127.0.0.1:{{controller_port}}
advertised.listeners={{clients}}
listener.security.protocol.map=CLIENT:{{protocol}},MANAGE:PLAINTEXT,CONTROLLER:PLAINTEXT
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

# Both as a server and, for what a broker sends to itself, as a client.
SECURED = f"""
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.client.plain.sasl.jaas.config={{login}}
listener.name.client.ssl.keystore.type=PEM
listener.name.client.ssl.keystore.location={KEYSTORE}
listener.name.client.ssl.truststore.type=PEM
listener.name.client.ssl.truststore.location={TRUSTSTORE}
listener.name.client.ssl.enabled.protocols=TLSv1.3,TLSv1.2
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


@dataclass(frozen=True, slots=True)
class Access:
    """Whom a broker lets in, and by what it is known."""

    user: str
    password: str = field(repr=False)
    certificate: Path  # the broker's own, for the host that clients reach it by
    key: Path  # of the certificate, in PEM form without a password
    ca: Path  # that has signed the certificate

    @property
    def credentials(self) -> Credentials:
        """What a client needs."""
        return Credentials(self.user, self.password, str(self.ca))


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach what listens on a host.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0"), is_loopback("192.0.2.7")
    (True, True, False, False)
    """
    try:
        found = [ipaddress.ip_address(host)]
    except ValueError:
        try:
            found = [ipaddress.ip_address(one[4][0]) for one in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
        except (OSError, UnicodeError, ValueError):
            return False
    return bool(found) and all(one.is_loopback for one in found)


def broker_files(
    listeners: Mapping[str, str], controller_port: int, retention_s: float, access: Access | None
) -> dict[str, bytes]:
    """Return what to write into a broker's folder, by the names of the files.

    Args:
        listeners: Addresses that clients reach it by, by the names 'CLIENT' and perhaps 'MANAGE'.
        controller_port: On loopback, for itself.
        retention_s: How long a record is kept.
        access: What CLIENT asks for; None: for nothing.

    Raises:
        BindError: HW4208, the user or the password cannot be used.
        OSError: a certificate or key cannot be read.
    """
    text = SETTINGS.format(
        clients=",".join(f"{name}://{address}" for name, address in listeners.items()),
        protocol="PLAINTEXT" if access is None else "SASL_SSL",
        controller_port=controller_port,
        retention_ms=int(retention_s * 1000),
    )
    files = {"log4j2.properties": LOGGING.encode()}
    if access is not None:
        if not NAME.fullmatch(access.user) or not (access.password.isascii() and access.password.isprintable()):
            raise BindError(
                f"HW4208 the user '{access.user}' or its password cannot be those of a broker: a user has only "
                "letters, digits and '_', a password only printable ASCII; choose others"
            )
        login = jaas(access.user, access.password, is_server=True).replace("\\", "\\\\")  # as such a file wants it
        text += SECURED.format(login=login)
        files[KEYSTORE] = access.key.read_bytes().rstrip() + b"\n" + access.certificate.read_bytes()
        files[TRUSTSTORE] = access.ca.read_bytes()
    return {**files, "broker.properties": text.encode("ascii")}

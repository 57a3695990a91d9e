"""A control plane whose parts reach each other beyond loopback, as docs/control.md tells.

`python -m tests.remote FOLDER` is for a network of its own. It gives that two addresses beyond loopback, starts a
controller and two agents with tokens, certificates and relative paths, as somebody would on three machines, and lets
records go from one site to the other and back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from headwater.bind import keyring, topics
from headwater.serve.client import Client, find

ADDRESSES = {"a": "10.99.0.1", "b": "10.99.0.2"}
COUNT = 500
CODE = 'def passing(records):\n    return records.select("key", "value")\n'
TOWN = """\
jobs:
- {job_name: A, spe_address: a, source_broker: a, source_topic: T-in, sink_broker: b, sink_topic: T-mid,
   entry_class: "town:passing", job_path: town.py}
- {job_name: B, spe_address: b, source_broker: b, source_topic: T-mid, sink_broker: a, sink_topic: T-out,
   entry_class: "town:passing", job_path: town.py}
"""


def headwater(*words: str) -> None:
    """Run a command to its end."""
    subprocess.run([sys.executable, "-m", "headwater.serve.main", *words], check=True, timeout=240)


def started(log: str, *words: str) -> subprocess.Popen[bytes]:
    with Path(log).open("wb") as out:
        return subprocess.Popen([sys.executable, "-m", "headwater.serve.main", *words], stdout=out, stderr=out)


def until(is_so: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + 120.0
    while not is_so():
        assert time.monotonic() < end_s, f"not within two minutes: {what}"
        time.sleep(0.2)


def brokers() -> dict[str, str]:
    """Return the brokers of the sites that answer."""
    with contextlib.suppress(Exception), Client(find(None, "control")) as client:
        return {one["name"]: one["broker"] for one in client.get("/sites")["sites"] if one["is_reached"]}
    return {}


def walk() -> None:
    """Do what the page tells, and count."""
    host = ADDRESSES["a"]
    headwater("ca", "--folder", "tls", "--host", host)
    tls = ("--cert", "tls/controller.pem", "--key", "tls/controller.key", "--ca", "tls/ca.pem")
    running = [started("serve.log", "serve", "--state", "control", "--host", host, "--port", "8470", *tls)]
    try:
        until(Path("control/controller.json").exists, "the controller is up")
        for site, address in ADDRESSES.items():
            headwater("token", "create", site, "--out", f"{site}.token", "--state", "control")
            headwater("ca", "--folder", "tls", "--name", site, "--host", address)
            own = ("--cert", f"tls/{site}.pem", "--key", f"tls/{site}.key", "--ca", "tls/ca.pem", "--listen", address)
            words = ("--controller", f"https://{host}:8470", "--token-file", f"{site}.token", "--state", site, *own)
            running.append(started(f"{site}.log", "agent", "--site", site, *words))
        until(lambda: len(brokers()) == 2, "both sites answer")
        Path("town.py").write_text(CODE, "utf-8")
        Path("town.yaml").write_text(TOWN, "utf-8")
        headwater("apply", "town.yaml", "--yes", "--state", "control")
        count()
        secrets = [Path(one, "broker.password").read_text("ascii") for one in ADDRESSES]
        secrets += [Path(f"{one}.token").read_text("ascii").strip() for one in ADDRESSES]
        told = "".join(one.read_text("utf-8", "replace") for one in Path().glob("*.log"))
        assert not [one for one in secrets if one in told], "a secret in a log"
    finally:
        for site in ADDRESSES:
            Path(site, "end").touch()  # runners and broker, too
        for one in reversed(running):
            one.send_signal(signal.SIGTERM)
            one.wait(90.0)


def count() -> None:
    """Let records go from a to b and back, and move a job on the way."""
    keyring.use(Path("a/keyring.json"))
    address = brokers()["a"]
    producer = Producer(topics.client_settings(address))
    for number in range(COUNT):
        producer.produce("T-in", str(number))
        if number == COUNT // 2:
            assert producer.flush(60.0) == 0
            headwater("move", "B", "a", "--yes", "--state", "control")
    assert producer.flush(60.0) == 0

    def back() -> list[int]:
        return [int(one.value() or b"") for one in topics.tail(address, "T-out", 0, 60.0)]

    until(lambda: len(back()) >= COUNT, "all came back")
    assert back() == list(range(COUNT)), "lost, doubled or out of order"


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    for each in ("link set lo up", *(f"addr add {one}/32 dev lo" for one in ADDRESSES.values())):
        subprocess.run(["ip", *each.split()], check=True)
    walk()

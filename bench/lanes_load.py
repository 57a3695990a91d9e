"""How is a lane loaded, and how is it watched?

`Load` writes records of 1 kB at an even pace into topics and reads the topics of the results, both in
threads of this process: one clock for birth and for receipt. `measure` is one measurement: warm up, count,
wait for what is still on its way. What runs between the topics is not known here, only how to ask it for
its processor time and memory.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from bench.lanes_ages import Ages, figures

__all__ = ["GROUPS", "HEAD", "RECORD_BYTES", "Load", "Pace", "Usage", "measure", "record", "tree_usage"]

RECORD_BYTES = 1000
GROUPS = 100
HEAD = 15  # characters of a record that name its group
FIRST_S = 120.0  # a lane without a result by then has none
DRAIN_S = 30.0  # a result that is not there by then counts as missing
SWITCH_S = 0.0002  # a reader waits no longer for the interpreter than this

Usage = Callable[[], tuple[float, int]]  # processor seconds so far, bytes of memory


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is measured."""

    rate_rps: float
    seconds: float = 20.0
    warm_s: float = 8.0  # after the first result


def record(number: int, born_ns: int) -> bytes:
    """Return the value of a record: JSON, its group first, of 1 000 bytes.

    >>> record(17, 1)[:HEAD], len(record(17, 1))
    (b'{"group":"g017"', 1000)
    """
    head = f'{{"group":"g{number % GROUPS:03d}","id":{number},"t":{born_ns},"text":"'
    return f"{head}{'headwater ' * 100}"[: RECORD_BYTES - 2].encode() + b'"}'


def newest_of(message: Message) -> int:
    """Return the record that a result tells of: its key, or, where that names a group, `latest` of its value."""
    key: Any = message.key()
    if key is not None and key.isdigit():
        return int(key)
    value: Any = message.value()
    return int(json.loads(value)["latest"])


class Load:
    """Records into topics in turn, and results out of others."""

    def __init__(
        self, source: str, inputs: Sequence[str], sink: str, outputs: Sequence[str], groups: int | None
    ) -> None:
        """Take the brokers' addresses and the topics, which are there, with one partition each."""
        self.ages = Ages(groups)
        self._inputs = tuple(inputs)
        self._producer = Producer({"bootstrap.servers": source, "linger.ms": 0, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": sink,
                "group.id": "bench",  # demanded, not used: nothing is committed
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, 0, 0) for topic in outputs])
        self._ends = threading.Event()
        self._fed = threading.Event()
        self.first = threading.Event()  # a result is there
        self.first_ns = 0
        self._threads: list[threading.Thread] = []

    def start(self, rate_rps: float) -> None:
        """Begin to write and to read."""
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._feed, args=(rate_rps,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop_feeding(self) -> None:
        """Write no more."""
        self._fed.set()
        self._threads[1].join()

    def close(self) -> None:
        """End both threads."""
        self._fed.set()
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def drain(self, timeout_s: float) -> None:
        """Wait until every record has its result, at most this long."""
        end_s = time.monotonic() + timeout_s
        while self.ages.seen_count < self.ages.count and time.monotonic() < end_s:
            time.sleep(0.05)

    def _feed(self, rate_rps: float) -> None:
        begun_s = time.perf_counter()
        sent = 0
        while not self._fed.is_set():
            due_s = begun_s + sent / rate_rps - time.perf_counter()
            if due_s > 0:
                time.sleep(due_s)
            born_ns = time.time_ns()
            number = self.ages.born(born_ns)
            while True:
                try:
                    self._producer.produce(
                        self._inputs[number % len(self._inputs)], record(number, born_ns), str(number)
                    )
                    break
                except BufferError:
                    self._producer.poll(0.01)
            self._producer.poll(0)
            sent += 1
        self._producer.flush(10.0)

    def _read(self) -> None:
        while not self._ends.is_set():
            message = self._consumer.poll(0.1)
            now_ns = time.time_ns()
            if message is None or message.error() is not None:
                continue
            self.ages.seen(newest_of(message), now_ns)
            if not self.first.is_set():
                self.first_ns = now_ns
                self.first.set()


def measure(load: Load, pace: Pace, usage: Usage) -> dict[str, Any]:
    """Load a lane and return what was seen; `left_out` with the reason where nothing came."""
    with _switching(SWITCH_S):
        try:
            load.start(pace.rate_rps)
            if not load.first.wait(FIRST_S):
                return {"left_out": f"no result in {FIRST_S:.0f} s"}
            time.sleep(pace.warm_s)
            begin_ns, before, (cpu_s, _), busy_s = time.time_ns(), load.ages.count, usage(), _busy_s()
            time.sleep(pace.seconds)
            end_ns, after = time.time_ns(), load.ages.count
            (cpu_after_s, memory_bytes), busy_after_s = usage(), _busy_s()
            load.stop_feeding()
            load.drain(DRAIN_S)
            ages_ms, unseen = load.ages.between(begin_ns, end_ns, time.time_ns())
        finally:
            load.close()
    passed_s = (end_ns - begin_ns) / 1e9
    return {
        **figures(ages_ms, unseen),
        "sent_rps": (after - before) / passed_s,
        "doubles": load.ages.doubles,
        "cores": (cpu_after_s - cpu_s) / passed_s,
        "memory_bytes": memory_bytes,
        "machine_cores": (busy_after_s - busy_s) / passed_s,  # everything on this machine, other people's work too
    }


def tree_usage(pid: int) -> tuple[float, int]:
    """Return processor seconds and memory of a process and all below it, those that have ended included."""
    used_s, memory_bytes = 0.0, 0
    with contextlib.suppress(psutil.Error):
        top = psutil.Process(pid)
        for one in (top, *top.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                used_s += sum(one.cpu_times()[:4])  # its own, and those of children that it has waited for
                memory_bytes += one.memory_info().rss
    return used_s, memory_bytes


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


@contextlib.contextmanager
def _switching(interval_s: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        yield
    finally:
        sys.setswitchinterval(before)

"""Do the links of a testbed do what was asked of them?

Sends along every link, in each direction: small datagrams that carry the time at which they were sent, and, if
wanted, a TCP stream for two seconds (longer on a slow link). Both ends are sockets of this process, so that one
clock tells the delay. A packet has 52 bytes of headers of IP and TCP, which a link carries too; what is asked of a
rate is the rest.

    HW4910   a link cannot be measured
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import statistics
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.errors import BindError
from headwater.testbed.bed import Bed
from headwater.testbed.network import MTU_BYTES, LinkState, inside

__all__ = ["DATA_PART", "Measured", "calibrate", "is_delay_off", "is_rate_off"]

PINGS = 21
PING_GAP_S = 0.005
PING_BYTES = 64
LOST_S = 1.0  # beyond the link's latency, after which a datagram is given up
WARM_S = 0.5  # and twenty latencies, until a stream has found its pace
STREAM_S = 2.0
QUEUE_S = 10.0  # after which a queue is not waited for any longer
WINDOWS = 5
WINDOW_PACKETS = 50
CHUNK_BYTES = 65_536
DATA_PART = (MTU_BYTES - 52) / MTU_BYTES
DELAY_SLACK_S = 0.002
EARLY_SLACK_S = 0.0002  # a delay is never shorter than asked but for the grain of clocks
PART_SLACK = 0.05
PRIORITY = 5  # of SCHED_FIFO; that of a link process is higher
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction of a link, measured."""

    origin: str
    target: str
    what: str  # 'delay' in seconds one way, or 'rate' in bit/s of data
    asked: float
    found: float | None  # None: nothing came through
    is_off: bool


def is_delay_off(asked_s: float, found_s: float | None) -> bool:
    """Return whether a delay is more than 2 ms and 5 % too long, or too short.

    >>> is_delay_off(0.04, 0.0439), is_delay_off(0.04, 0.0441), is_delay_off(0.04, None)
    (False, True, True)
    """
    if found_s is None:
        return True
    return not asked_s - EARLY_SLACK_S <= found_s <= asked_s * (1 + PART_SLACK) + DELAY_SLACK_S


def is_rate_off(asked_bps: float, found_bps: float | None) -> bool:
    """Return whether a rate of data is more than 5 % from what was asked."""
    return found_bps is None or abs(found_bps - asked_bps) > PART_SLACK * asked_bps


def calibrate(bed: Bed, with_rate: bool = False, say: Say | None = None) -> tuple[Measured, ...]:
    """Measure every link of a bed as it is, cut links excepted; with rates it takes about six seconds a link.

    Raises:
        SpecError: HW1902, the bed is not up.
        BindError: HW4910, a link cannot be measured.
    """
    with _hurried():
        return tuple(_all(bed, ("delay", "rate") if with_rate else ("delay",), say))


@contextlib.contextmanager
def _hurried() -> Iterator[None]:
    """Go before all but the links, where that is allowed: the links are to be measured, not what else runs here."""
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    try:
        yield
    finally:
        os.sched_setscheduler(0, *before)


def _all(bed: Bed, whats: tuple[str, ...], say: Say | None) -> Iterator[Measured]:
    for what in whats:
        for wire, link in zip(bed.layout.wires, bed.status().links, strict=True):
            if link.state.is_cut:
                continue
            for names, addresses in (((wire.a, wire.b), wire.addresses), ((wire.b, wire.a), wire.addresses[::-1])):
                if say is not None:
                    say(f"{what} from '{names[0]}' to '{names[1]}'")
                ends = [(bed.layout.namespace(site), address) for site, address in zip(names, addresses, strict=True)]
                try:
                    yield _measured(what, names, ends, link.state)
                    if what == "rate":
                        _settle(bed)
                except OSError as error:
                    raise BindError(
                        f"HW4910 the {what} from '{names[0]}' to '{names[1]}' cannot be measured: {error}. It takes "
                        f"root, and a testbed that is whole: take it down and up again."
                    ) from error


def _settle(bed: Bed) -> None:
    """Wait until the queue that a stream leaves behind is sent, else the next delay would be that of the queue."""
    end_s = time.monotonic() + QUEUE_S
    while any(one.backlog_bytes for one in bed.traffic()) and time.monotonic() < end_s:
        time.sleep(PING_GAP_S)


def _measured(what: str, names: tuple[str, str], ends: list[tuple[str, str]], state: LinkState) -> Measured:
    if what == "delay":
        delay_s = _delay(ends, state)
        return Measured(*names, what, state.latency_s, delay_s, is_delay_off(state.latency_s, delay_s))
    asked_bps, rate_bps = state.bandwidth_bps * DATA_PART, _rate(ends, state)
    return Measured(*names, what, asked_bps, rate_bps, is_rate_off(asked_bps, rate_bps))


def _delay(ends: list[tuple[str, str]], state: LinkState) -> float | None:
    """Return the median of some datagrams' delays, without the time that sending one takes at this bandwidth."""
    (home, here), (away, there) = ends
    sender = inside(home, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    receiver = inside(away, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    delays: list[float] = []
    with sender, receiver:
        sender.bind((here, 0))
        receiver.bind((there, 0))
        receiver.setblocking(False)
        target = receiver.getsockname()
        sending_s = (PING_BYTES + 28) * 8 / state.bandwidth_bps
        gap_s = max(PING_GAP_S, 2 * sending_s)  # else they queue up behind each other
        sent, next_s = 0, time.monotonic()
        end_s = next_s + PINGS * gap_s + state.latency_s + LOST_S
        while len(delays) < PINGS and (now_s := time.monotonic()) < end_s:
            if sent < PINGS and now_s >= next_s:
                sender.sendto(struct.pack("d", time.monotonic()).ljust(PING_BYTES), target)
                sent, next_s = sent + 1, next_s + gap_s
            until_s = next_s if sent < PINGS else end_s
            if select.select([receiver], [], [], max(0.0, until_s - time.monotonic()))[0]:
                arrived_s = time.monotonic()
                with contextlib.suppress(BlockingIOError):
                    (sent_s,) = struct.unpack_from("d", receiver.recv(PING_BYTES))
                    delays.append(arrived_s - sent_s - sending_s)
    return statistics.median(delays) if delays else None


def _rate(ends: list[tuple[str, str]], state: LinkState) -> float | None:
    """Return the bits of data that come through in a second, once the stream has found its pace."""
    (home, here), (away, there) = ends
    sender = inside(home, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    listener = inside(away, lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # Finds the bandwidth of a long link within the time that is measured, and is not shy of loss.
    with contextlib.suppress(OSError):
        sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    with sender, listener:
        sender.bind((here, 0))
        listener.bind((there, 0))
        listener.listen(1)
        sender.settimeout(LOST_S + 10 * state.latency_s)
        try:
            sender.connect(listener.getsockname())
        except TimeoutError:
            return None
        receiver, _ = listener.accept()
        is_over = threading.Event()
        thread = threading.Thread(target=_pour, args=(sender, is_over), name="calibrate", daemon=True)
        with receiver:
            receiver.settimeout(LOST_S)
            thread.start()
            try:
                return _pace(receiver, WARM_S + 20 * state.latency_s, _window_s(state.bandwidth_bps))
            finally:
                is_over.set()
                receiver.close()
                thread.join()


def _pour(sender: socket.socket, is_over: threading.Event) -> None:
    chunk = bytes(CHUNK_BYTES)
    with contextlib.suppress(OSError):
        while not is_over.is_set():
            sender.send(chunk)


def _window_s(bandwidth_bps: float) -> float:
    """Return how long to count, so that a packet more or less does not matter."""
    return max(STREAM_S / WINDOWS, WINDOW_PACKETS * MTU_BYTES * 8 / bandwidth_bps)


def _pace(receiver: socket.socket, warm_s: float, window_s: float) -> float | None:
    """Return the median of what came in a second, over some windows: one in which the machine stood still is left."""
    rates: list[float] = []
    opened_s, got = time.monotonic() + warm_s, 0
    end_s = opened_s + WINDOWS * window_s + LOST_S
    while len(rates) < WINDOWS and time.monotonic() < end_s:
        try:
            size = len(receiver.recv(CHUNK_BYTES))
        except TimeoutError:
            continue
        now_s = time.monotonic()
        if now_s < opened_s:
            got = 0
            continue
        got += size
        if now_s >= opened_s + window_s:
            rates.append(got * 8 / (now_s - opened_s))
            opened_s, got = now_s, 0
    return statistics.median(rates) if rates else None

"""How does one machine behave as if two of its networks lay far apart?

One process for each link: what the kernel sends into one end comes out of the other end later, in order, no
faster than the link's bandwidth, or not at all. It runs by file path with nothing but the standard library
(`python -I -S link_process.py --bed NAME SPEC`), so that a bed of many links starts in no time.

    {"control": PATH, "mode": "tun", "ends": [[NAMESPACE, DEVICE], [NAMESPACE, DEVICE]], "seed": 7,
     "latency_s": 0.01, "bandwidth_bps": 1e7}

is a SPEC. In mode 'tun' it makes a TUN device in each namespace; in mode 'packet' it takes two interfaces that
are there (for where `/dev/net/tun` may not be opened). A namespace of null is the one it was started in. It
returns when both ends are there and goes on in the background, without the descriptors listed as 'held', until the
process 'owner' has ended, if one is named. Its control socket takes one JSON object in a message:

    {"do": "set", "latency_s": 0.02, "direction": 0}    all of `SETTINGS`; without a direction for both
    {"do": "stats", "fresh": true}                      counts by direction; 'fresh' forgets the greatest lateness
    {"do": "end"}
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import json
import os
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

__all__ = [
    "LEAST_QUEUE_BYTES",
    "SEGMENTED_BPS",
    "SETTINGS",
    "Direction",
    "LinkProcess",
    "enter_namespace",
    "main",
    "queue_limit",
]

LEAST_QUEUE_BYTES = 65_536
QUEUE_S, QUEUE_BYTES = 0.02, 1_500_000  # of a fast short link, as a switch has it: a burst of one sender fits
SETTINGS = ("latency_s", "bandwidth_bps", "loss", "queue_bytes", "is_cut")
LATE_S = 0.005
BURST = 32  # packets read or written before the other end gets its turn
LONGEST_PACKET = 70_000  # with the header of a packet socket
LONGEST_MESSAGE = 65_536
PRIORITY = 10  # of SCHED_FIFO: whatever the sites compute, packets leave on time

CLONE_NEWNET = 0x40000000
TUNSETIFF, TUNSETOFFLOAD, TUNSETVNETHDRSZ = 0x400454CA, 0x400454D0, 0x400454D8
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4 = 0x01, 0x02
SEGMENT_HEADERS_BYTES = 52  # of IP and TCP, where the kernel does not tell
OFFLOAD = struct.Struct("=BBHHHH")  # before each packet: flags, kind, length of headers, of a segment's data, checksum
SEGMENTED_BPS = 50e6  # from here on the kernel hands over many segments at once, else a core carries 200 Mbit/s
SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 6, 15, 23
MISSED = struct.Struct("=II")  # packets that came, and those of them that found no room
ETH_P_ALL = 0x0003
ETHERNET_BYTES = 14  # which a link of IP packets does not carry
PR_SET_TIMERSLACK = 29
GONE = {errno.EBADFD, errno.EBADF, errno.EIO, errno.ENXIO, errno.ENODEV, errno.ENETDOWN}


def queue_limit(latency_s: float, bandwidth_bps: float) -> float:
    """Return how many bytes may wait before a link: what is on its way to the other end and back, and not too few.

    >>> queue_limit(0.04, 100e6), queue_limit(0.001, 1e6), queue_limit(0.0003, 1e9)
    (1000000.0, 65536, 1500000)
    """
    burst_bytes = min(QUEUE_BYTES, QUEUE_S * bandwidth_bps / 8)
    return max(LEAST_QUEUE_BYTES, burst_bytes, 2 * latency_s * bandwidth_bps / 8)


class Direction:
    """One direction of a link: a queue before a transmitter, and the way to the other end."""

    def __init__(self, latency_s: float, bandwidth_bps: float, seed: int) -> None:
        """Make it empty; `seed` decides which packets are lost."""
        self.latency_s = latency_s
        self.bandwidth_bps = bandwidth_bps
        self.loss = 0.0
        self.queue_bytes: float | None = None  # None: by latency and bandwidth
        self.is_cut = False
        self.packets = 0
        self.bytes = 0
        self.dropped = 0
        self.late = 0  # packets that came out more than LATE_S later than they should
        self.greatest_lateness_s = 0.0
        self._limit_bytes = queue_limit(latency_s, bandwidth_bps)
        # due, leaves the transmitter, size, segments, packet
        self._line: deque[tuple[float, float, int, int, bytes]] = deque()
        self._free_s = 0.0  # when the transmitter is free
        self._chance = random.Random(seed).random

    def offer(self, packet: bytes, size: int, now_s: float, late_s: float = 0.0, segments: int = 1) -> None:
        """Take a packet that counts as so many bytes and segments, or drop it.

        A machine that looks `late_s` too late must not make the link slower: the transmitter may have begun with
        what came meanwhile. It must not make the way shorter either: that begins now at the earliest.
        """
        if self.is_cut or (self.loss and self._chance() < self.loss):
            self.dropped += segments
            return
        free_s, came_s = self._free_s, now_s - late_s
        if free_s <= came_s:
            free_s = came_s
        elif (free_s - now_s) * self.bandwidth_bps / 8 + size > self._limit_bytes:
            self.dropped += segments
            return
        self._free_s = free_s = free_s + size * 8 / self.bandwidth_bps
        self._line.append((max(free_s, now_s) + self.latency_s, free_s, size, segments, packet))

    @property
    def due_s(self) -> float | None:
        """Return when the next packet comes out; None: none is under way."""
        return self._line[0][0] if self._line else None

    def take(self, now_s: float) -> bytes | None:
        """Return the packet that is due and count it; None if none is."""
        if not self._line or self._line[0][0] > now_s:
            return None
        due_s, _, size, segments, packet = self._line.popleft()
        self.packets += segments
        self.bytes += size
        self.late += segments if now_s - due_s > LATE_S else 0
        self.greatest_lateness_s = max(self.greatest_lateness_s, now_s - due_s)
        return packet

    def set(self, now_s: float, **settings: Any) -> None:
        """Change some of `SETTINGS`; what waits to be sent is sent as the link is from here on."""
        old_bps = self.bandwidth_bps
        for name, value in settings.items():
            if name not in SETTINGS:
                raise ValueError(f"'{name}' is none of {', '.join(SETTINGS)}")
            setattr(self, name, value)
        given = self.queue_bytes
        self._limit_bytes = queue_limit(self.latency_s, self.bandwidth_bps) if given is None else given
        if self.is_cut:
            self.dropped += sum(one[3] for one in self._line)
            self._line.clear()
            self._free_s = now_s
            return
        waiting = []
        while self._line and self._line[-1][1] > now_s:
            waiting.append(self._line.pop())
        free_s = now_s
        for number, (_, leaves_s, size, segments, packet) in enumerate(reversed(waiting)):
            # The first is being sent: the old bandwidth says how much of it is still to go.
            bits = size * 8 if number else min(size * 8, (leaves_s - now_s) * old_bps)
            free_s += bits / self.bandwidth_bps
            self._line.append((free_s + self.latency_s, free_s, size, segments, packet))
        self._free_s = free_s

    def stats(self, now_s: float, fresh: bool) -> dict[str, Any]:
        """Return the counts and settings; `fresh` forgets the greatest lateness."""
        found = {
            "packets": self.packets,
            "bytes": self.bytes,
            "dropped": self.dropped,
            "backlog_bytes": round(max(0.0, self._free_s - now_s) * self.bandwidth_bps / 8),
            "late": self.late,
            "greatest_lateness_s": self.greatest_lateness_s,
            "limit_bytes": self._limit_bytes,
            **{name: getattr(self, name) for name in SETTINGS},
        }
        if fresh:
            self.greatest_lateness_s = 0.0
        return found


def enter_namespace(path: str) -> None:
    """Bring this thread into a network namespace, named by its file.

    Raises:
        OSError: it is not there, or may not be entered.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def _open_tun(device: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH14x", device.encode("ascii"), flags))
    fcntl.ioctl(descriptor, TUNSETVNETHDRSZ, struct.pack("=i", OFFLOAD.size))
    return descriptor


def _open_packet(device: str) -> int:
    end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    # With the offload header a checksum that the sender left to its device stays left to the other one.
    end.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    end.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)  # what this side itself sends out comes from no site
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    end.bind((device, ETH_P_ALL))
    end.setblocking(False)
    return end.detach()


class LinkProcess:
    """The two ends, the two directions between them, and the control socket."""

    def __init__(self, spec: dict[str, Any]) -> None:
        """Open the ends and the control socket.

        Raises:
            OSError: one of them cannot be opened.
        """
        self._is_tun = spec["mode"] == "tun"
        open_end = _open_tun if self._is_tun else _open_packet
        self._overhead = OFFLOAD.size + (0 if self._is_tun else ETHERNET_BYTES)
        self._ends: list[int] = []
        home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        for namespace, device in spec["ends"]:
            if namespace is not None:
                enter_namespace(f"/run/netns/{namespace}")
            self._ends.append(open_end(device))
            # Back again: a process that stands in a namespace keeps it alive after its name is gone.
            enter_namespace(f"/proc/self/fd/{home}")
        os.close(home)
        seed = int(spec["seed"])
        self._ways = [Direction(spec["latency_s"], spec["bandwidth_bps"], 2 * seed + side) for side in (0, 1)]
        self._set_offload()
        self._control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.bind(spec["control"])
        self._control.listen(8)
        self._control.setblocking(False)
        self._callers: list[socket.socket] = []
        owner = spec.get("owner")
        self._owner = os.pidfd_open(owner) if owner is not None else None
        self._is_over = False
        self._is_realtime = _hurry()

    def _set_offload(self) -> None:
        """Let the kernel hand over whole trains of segments where a link is fast: each costs as much as one packet.

        On a slow link a train would hold up what comes behind it for too long, and hardly fit into the queue.
        """
        if not self._is_tun:
            return
        for end, way in zip(self._ends, self._ways, strict=True):
            is_fast = way.bandwidth_bps >= SEGMENTED_BPS
            fcntl.ioctl(end, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 if is_fast else 0)

    def carry(self) -> None:
        """Carry packets and answer until told to end, or until an end is gone."""
        first, second = self._ends
        there, back = self._ways
        while not self._is_over:
            now_s = time.monotonic()
            dues = [way.due_s for way in self._ways if way.due_s is not None]
            wake_s = max(now_s, min(dues)) if dues else None
            timeout_s = wake_s - now_s if wake_s is not None else None
            watched: list[int | socket.socket] = [first, second, self._control, *self._callers]
            if self._owner is not None:
                watched.append(self._owner)
            ready, _, _ = select.select(watched, [], [], timeout_s)
            late_s = max(0.0, time.monotonic() - wake_s) if wake_s is not None else 0.0
            for end in ready:
                if end == self._owner:
                    self._is_over = True
                elif isinstance(end, int):
                    self._take_in(end, there if end == first else back, late_s)
                elif end is self._control:
                    self._accept()
                else:
                    self._answer(end)
            self._let_out(there, second)
            self._let_out(back, first)

    def _take_in(self, end: int, way: Direction, late_s: float) -> None:
        for _ in range(BURST):
            try:
                packet = os.read(end, LONGEST_PACKET)
            except BlockingIOError:
                return
            except OSError as error:
                self._is_over = self._is_over or error.errno in GONE
                return
            _, kind, headers, data, _, _ = OFFLOAD.unpack_from(packet)
            size, segments = len(packet) - self._overhead, 1
            if kind:  # a train: on the link each segment has headers of its own
                headers = headers + OFFLOAD.size - self._overhead if headers else SEGMENT_HEADERS_BYTES
                segments = max(1, -(-(size - headers) // data))
                size += (segments - 1) * headers
            way.offer(packet, size, time.monotonic(), late_s, segments)

    def _let_out(self, way: Direction, end: int) -> None:
        for _ in range(BURST):
            packet = way.take(time.monotonic())
            if packet is None:
                return
            try:
                os.write(end, packet)
            except OSError:  # the interface is down, or its queue is full: as on any network, the packet is gone
                way.dropped += 1

    def _count_missed(self) -> None:
        """Count what came while this process had no time to read, and the socket no room."""
        if self._is_tun:  # there the device counts it
            return
        for number, way in zip(self._ends, self._ways, strict=True):
            with socket.socket(fileno=os.dup(number)) as end:
                _, missed = MISSED.unpack(end.getsockopt(SOL_PACKET, PACKET_STATISTICS, MISSED.size))
            way.dropped += missed

    def _accept(self) -> None:
        try:
            caller, _ = self._control.accept()
        except OSError:  # it has hung up already
            return
        self._callers.append(caller)

    def _answer(self, caller: socket.socket) -> None:
        try:
            message = caller.recv(LONGEST_MESSAGE)
            if message:
                caller.send(json.dumps(self._reply(json.loads(message))).encode())
                return
        except (OSError, ValueError):
            pass
        self._callers.remove(caller)
        caller.close()

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        now_s = time.monotonic()
        do = request.pop("do", None)
        try:
            if do == "set":
                side = request.pop("direction", None)
                for way in self._ways if side is None else [self._ways[side]]:
                    way.set(now_s, **request)
                self._set_offload()
            elif do == "end":
                self._is_over = True
            elif do != "stats":
                raise ValueError(f"'{do}' is none of set, stats, end")
        except (TypeError, ValueError, LookupError) as error:
            return {"error": str(error)}
        self._count_missed()
        fresh = do == "stats" and bool(request.get("fresh"))
        return {
            "pid": os.getpid(),
            "is_realtime": self._is_realtime,
            "directions": [way.stats(now_s, fresh) for way in self._ways],
        }


def _hurry() -> bool:
    """Ask for a place before all other processes; return whether it was granted."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except OSError:
        return False
    return True


def main(words: list[str]) -> int:
    """Run a link from its command line: '--bed', the bed's name, the SPEC."""
    spec = json.loads(words[2])
    try:
        link = LinkProcess(spec)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if os.fork():
        os._exit(0)  # whoever started the link knows by this that both ends are there
    for held in spec.get("held", ()):
        os.close(held)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    said = os.open(f"{spec['control']}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, said), (2, said)):
        os.dup2(source, target)
    gc.disable()
    link.carry()
    Path(spec["control"]).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""How are the figures of lanes shown? One layout for each section, as in `bench.tables`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from bench.tables import Layout

__all__ = ["LAYOUTS", "TITLES"]

Row = Mapping[str, Any]
Cells = tuple[str, ...]
NONE = "-"
LATENCY = ("p50 ms", "p90 ms", "p99 ms", "max ms")


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}".replace(",", " ")


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:.0f}"


def _times(value: float | None) -> str:
    if value is None:
        return NONE
    return "<0.1 x" if value < 0.1 else f"{value:.1f} x" if value < 10 else f"{value:.0f} x"


def _latency(row: Row) -> Cells:
    mark = ">" if row["unseen"] else ""  # what has no result yet is older than it is said to be
    return tuple(f"{mark}{_ms(row[name])}" for name in ("p50_ms", "p90_ms", "p99_ms", "max_ms"))


def _use(row: Row) -> Cells:
    return f"{row['cores']:.2f}", _mebibytes(row["memory_bytes"]), f"{row['machine_cores']:.1f}"


def _note(row: Row) -> str:
    notes = ["falls behind"] if row["falls_behind"] else []
    if row["unseen"]:
        notes.append(f"{row['unseen']} of {row['records']} without a result")
    if row["sent_rps"] < 0.95 * row.get("rate_rps", 0.0):
        notes.append(f"only {row['sent_rps']:.0f}/s were written")
    if "micro-batch" in row.get("lanes", ()):
        notes.append(f"{row['lanes'].count('micro-batch')} fragments in micro-batches")
    notes += [str(text) for text in (*row.get("notes", ()), *row.get("warnings", ()))]
    return "; ".join(notes)


def _lanes(row: Row) -> Cells:
    return (*_latency(row), _times(row.get("times_p50")), _times(row.get("times_p99")), *_use(row), _note(row))


def _plane(row: Row) -> Cells:
    return (*_latency(row), *_use(row), _mebibytes(row["brokers_bytes"]), _note(row))


def _start(row: Row) -> Cells:
    return tuple(
        f"{row[name]['median']:.1f} ({row[name]['least']:.1f} to {row[name]['most']:.1f})"
        for name in ("ready_s", "first_s")
    )


def _memory(row: Row) -> Cells:
    total = row["runner_bytes"] + row["broker_bytes"]
    return _mebibytes(row["runner_bytes"]), _mebibytes(row["broker_bytes"]), _mebibytes(total), _note(row)


_USE = ("cores", "MiB", "machine's cores")
_PLANE = Layout(("project", "rate", *LATENCY, *_USE, "MiB brokers", "note"), _plane, ("case", "rate"))
_LANES = Layout(
    ("query", "lane", "rate", *LATENCY, "times p50", "times p99", *_USE, "note"), _lanes, ("case", "lane", "rate")
)
LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "lanes": _LANES,
        "flink": _LANES,
        "boundary": Layout(
            ("query", "lane", "rate", *LATENCY, *_USE, "note"),
            lambda row: (*_latency(row), *_use(row), _note(row)),
            ("case", "lane", "rate"),
        ),
        "chain": _PLANE,
        "ten": _PLANE,
        "start": Layout(("project", "s to ready: median (least to most)", "s to the first result"), _start),
        "memory": Layout(("project", "MiB runner", "MiB broker", "MiB in all", "note"), _memory),
    }
)
TITLES: Mapping[str, str] = MappingProxyType(
    {
        "lanes": "Lanes: from a Kafka topic to a Kafka topic, 1 kB records; times: plain Spark's micro-batches to this",
        "flink": "The three queries in Flink; times: Flink, tuned by hand, to this",
        "boundary": "Lanes over the end of a batch",
        "chain": "A chain of four sites on one machine, from the first topic to the sink at the fourth",
        "ten": "Ten fragments in one runner",
        "start": "From the command to the first result, three sites, caches warm",
        "memory": "Memory of one site with three fragments",
    }
)

"""What does a person see of a run?

A `Screen` takes the same values that `--json` prints, and shows them: the plan, a table that is renewed
every second (on a terminal), warnings as they come, and the summary. Without a terminal the table comes
once in a while.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.model.units import show
from headwater.serve.plain import plain

if TYPE_CHECKING:
    from headwater.serve.prepare import Prepared

__all__ = ["Screen"]

RARELY_S = 10.0  # between two tables where there is no terminal
WIDTH = 120  # columns where nobody says how wide the page is
STATES = {"running": "green", "failed": "bold red", "down": "red", "waiting": "yellow", "stopped": "dim"}


class Screen:
    """Shows a run, as JSON or for people."""

    def __init__(self, as_json: bool) -> None:
        """Choose the form."""
        self._as_json = as_json
        self._console = Console(markup=False, highlight=False, emoji=False)
        if not self._console.is_terminal:
            self._console.width = WIDTH
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._last_s = 0.0

    def plan(self, prepared: Prepared, folder: Path, is_passing: bool) -> None:
        """Show what will run where."""
        if self._as_json:
            return
        table = _table("site", "fragment", "operators", "lane", "because", "to")
        for part in prepared.parts:
            to = f"topic {part.topic} at {part.broker}" if part.output == "channel" else part.output
            cells = (part.site, part.id, ", ".join(part.operators), part.lane, part.because, to)
            table.add_row(*map(plain, cells))
        console = self._console
        console.print(Text(plain(f"pipeline '{prepared.project.name}', placement {prepared.because}"), style="bold"))
        console.print(table)
        rt = prepared.score.rt_s
        if rt is not None:
            console.print(Text(f"predicted response time {show(rt, 'time')}"))
        for text in prepared.project.notes:
            console.print(Text(plain(f"note: {text}"), style="dim"))
        kept = "removed at the end; keep it with --state" if is_passing else "kept for the next run"
        console.print(Text(plain(f"state: {folder} ({kept})"), style="dim"))

    def ready(self, event: Mapping[str, Any]) -> None:
        """Say that every query runs."""
        if self._as_json:
            self._emit(event)
            return
        brokers = ", ".join(f"{site} {address}" for site, address in event["brokers"].items())
        self._console.print(Text(plain(f"ready after {event['seconds']:.1f} s; brokers: {brokers}"), style="green"))
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=2, transient=True)
            self._live.start()

    def progress(self, event: Mapping[str, Any]) -> None:
        """Show how it goes."""
        if self._as_json:
            self._emit(event)
        elif self._live is not None:
            self._live.update(_progress(event))
        elif time.monotonic() - self._last_s >= RARELY_S:
            self._last_s = time.monotonic()
            self._console.print(_progress(event))

    def tell(self, kind: str, event: Mapping[str, Any]) -> None:
        """Show a warning or an error; may be called from any thread."""
        if self._as_json:
            self._emit({"event": kind, **event})
            return
        where = event.get("fragment") or event.get("site") or ""
        operator = f", operator '{event['operator']}'" if event.get("operator") else ""
        record = f", record {event['record']}" if event.get("record") else ""
        text = f"{kind}: {where}{operator}{record}: {event['text']}"
        with self._lock:
            style = "bold red" if kind == "error" else "yellow"
            self._console.print(Text(plain(text, keep="\n"), style=style))
            if event.get("trace"):
                self._console.print(Text(plain(str(event["trace"]), keep="\n"), style="dim"))

    def summary(self, event: Mapping[str, Any]) -> None:
        """Show how it went."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._as_json:
            self._emit(event)
            return
        overall = event["overall"]
        table = _table("site", "fragment", "lane", "state", "in", "out", "p50", "p99", "set aside")
        for one in event["fragments"]:
            ages = overall.get(one["id"], {})
            cells = (str(one["in_total"]), str(one["out_total"]), _time(ages.get("p50_s")), _time(ages.get("p99_s")))
            table.add_row(
                plain(one["site"]), one["id"], one["lane"], one["state"], *cells, str(one["set_aside"] or "-")
            )
        self._console.print(Text(f"ran for {event['seconds']:.1f} s", style="bold"))
        self._console.print(table)
        for site, used in event["sites"].items():
            restarts = used["runner_restarts"] + used["broker_restarts"]
            again = f", restarted {restarts} times" if restarts else ""
            memory = f"runner {show(used['memory_bytes'], 'size')}, broker {show(used['broker_memory_bytes'], 'size')}"
            self._console.print(Text(plain(f"{site}: {memory}{again}")))
        if event.get("links"):
            table = _table("from", "to", "carried", "packets", "dropped", "latest")
            for one in event["links"]:
                late_s = one["greatest_lateness_s"]
                cells = (show(one["bytes"], "size"), str(one["packets"]), str(one["dropped"]), _time(late_s))
                table.add_row(plain(one["origin"]), plain(one["target"]), *cells)
            self._console.print(Text("links", style="bold"), table)

    def _emit(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            sys.stdout.write(json.dumps(event) + "\n")
            sys.stdout.flush()


def _progress(event: Mapping[str, Any]) -> Group:
    table = _table("site", "fragment", "lane", "state", "in/s", "out/s", "lag", "p50", "p99", "memory", "cores")
    seen: set[str] = set()
    above = None
    for one in event["fragments"]:
        first = one["site"] not in seen
        seen.add(one["site"])
        site, above = "" if one["site"] == above else plain(one["site"]), one["site"]
        table.add_row(
            site,
            one["id"],
            one["lane"],
            Text(one["state"], style=STATES.get(one["state"], "")),
            f"{one['in_rps']:.0f}",
            f"{one['out_rps']:.0f}",
            str(one["lag"]),
            _time(one["p50_s"]),
            _time(one["p99_s"]),
            show(one["memory_bytes"], "size") if first else "",
            f"{one['cores']:.2f}" if first else "",
        )
    return Group(Text(f"{event['at_s']:.0f} s", style="bold"), table)


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else show(value_s, "time")


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        is_number = head in {"in/s", "out/s", "lag", "p50", "p99", "memory", "cores", "in", "out", "set aside"}
        is_number |= head in {"carried", "packets", "dropped", "latest"}
        table.add_column(head, justify="right" if is_number else "left", overflow="fold")
    return table

"""How is everything, and what has happened?

The commands that only look: status, jobs, logs, history. With `--watch` and `--follow` they look again every
second; Ctrl-C ends that, and is no fault.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from rich.console import Console, RenderableType
from rich.live import Live

from headwater.serve import wire
from headwater.serve.client import Client, in_address
from headwater.serve.control_view import history_view, job_view, jobs_table, status_view
from headwater.serve.naming import job_named, jobs_named
from headwater.serve.output import Output
from headwater.serve.plain import plain
from headwater.serve.told import Object, failures_of, jobs_of, rows, sites_of

__all__ = ["added", "history", "jobs", "logs", "status"]

DONE = 0
TICK_S = 1.0
RARELY_S = 10.0  # between two tables where there is no terminal


def status(client: Client, output: Output, is_watched: bool) -> int:
    """Show sites and jobs, once or every second until Ctrl-C."""
    if not is_watched:
        said = client.get("/status")
        output.answer(said, _status(said))
        return DONE
    if output.as_json:
        _again(lambda: sys.stdout.write(wire.text(client.get("/status")) + "\n"), TICK_S)
        return DONE
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        _again(lambda: output.answer({}, _status(client.get("/status"))), RARELY_S)
        return DONE
    with Live(_status(client.get("/status")), console=console, refresh_per_second=4, screen=False) as live:
        _again(lambda: live.update(_status(client.get("/status"))), TICK_S)
    return DONE


def jobs(name: str | None, client: Client, output: Output) -> int:
    """Show all jobs, those of a composition or pipeline, or one with all that is known of it."""
    if name is None:
        said = client.get("/jobs")
        found = jobs_of(said)
        output.answer({"jobs": rows(said, "jobs")}, jobs_table(found) if found else "there are no jobs yet")
        return DONE
    found = jobs_named(name, client)
    if len(found) == 1 and found[0].name == name:
        said = client.get(f"/jobs/{in_address(name, safe='')}")
        output.answer({"job": said}, job_view(jobs_of([said])[0]))
    else:
        output.answer({"jobs": [dict(one.object) for one in found]}, jobs_table(found))
    return DONE


def logs(name: str, lines: int, is_followed: bool, client: Client, output: Output) -> int:
    """Show the end of a job's log, and what comes after it."""
    path = f"/jobs/{in_address(job_named(name, client).name, safe='')}/logs"
    text = str(client.get(path, lines=lines).get("text", ""))
    _print_log(text, name, output)
    if not is_followed:
        return DONE
    before = text

    def follow() -> None:
        nonlocal before
        after = str(client.get(path, lines=max(lines, 1)).get("text", ""))
        more = added(before, after)
        if more:
            _print_log(more, name, output)
        before = after

    _again(follow, TICK_S)
    return DONE


def history(limit: int, client: Client, output: Output) -> int:
    """Show who changed what."""
    said = client.get("/history", limit=limit)
    entries = rows(said, "history")
    output.answer({"history": entries}, history_view(entries))
    return DONE


def added(before: str, after: str) -> str:
    r"""Return the lines of the end of a log that were not in its end before.

    >>> added("a\nb\nc", "b\nc\nd")
    'd'
    """
    old, new = before.splitlines(), after.splitlines()
    for length in range(min(len(old), len(new)), 0, -1):
        if old[-length:] == new[:length]:
            return "\n".join(new[length:])
    return after


def _status(said: Object) -> RenderableType:
    return status_view(sites_of(said), jobs_of(said), failures_of(said))


def _print_log(text: str, name: str, output: Output) -> None:
    if output.as_json:
        sys.stdout.write(wire.text({"job": name, "text": text}) + "\n")
    elif text:
        sys.stdout.write(plain(text, keep="\n\t") + ("" if text.endswith("\n") else "\n"))
    sys.stdout.flush()


def _again(act: Callable[[], object], pause_s: float) -> None:
    """Act now and after every pause, until Ctrl-C."""
    try:
        while True:
            act()
            sys.stdout.flush()
            time.sleep(pause_s)
    except KeyboardInterrupt:
        return

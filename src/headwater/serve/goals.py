"""What do `headwater control status`, `set-class` and `set-policy` do?

Clients of the controller: goals are set there, sites hear of them with their next report and hold them by themselves.
What a site holds comes back the same way, with the reason of every share. That is told by its agent and passed on
unread, so here it may be anything: what is missing or of another kind is shown as unknown, and text is shown, never
obeyed.

    HW1346  a class or a goal that cannot be set, a name that nothing can have
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headwater.errors import Mistake, SpecError
from headwater.model.quality import LEAST_GOAL_S, MOST_GOAL_S, QUALITIES
from headwater.model.report import near, quote
from headwater.model.units import show
from headwater.plan.composition import name_trouble
from headwater.serve.client import Client, in_address
from headwater.serve.output import Output
from headwater.serve.plain import plain

__all__ = ["DEFAULT", "check_class", "set_class", "set_policy", "status"]

DONE = 0
NONE, DEFAULT = "none", "default"  # no class, and no policy, of its own
MOST_TEXT = 500  # characters of one thing that an agent tells
UNKNOWN = "-"
LARGE = 1e6  # cores; more are not written out
COLUMNS = ("runner", "class", "goal", "p99", "expected", "asks for", "share", "limit", "why")
WORDS = frozenset({"runner", "class", "why"})  # among the columns; numbers stand right


def status(client: Client, output: Output) -> int:
    """Show what every site holds, and why."""
    goals = client.part(client.get("/goals"), "goals")
    policy = client.part(client.get("/policy"), "policy")
    sites = [
        {"site": one["name"], "is_reached": one["is_reached"], **_told(one.get("told"))}
        for one in client.part(client.get("/sites"), "sites")
    ]
    output.answer({"goals": goals, "policy": policy, "sites": sites}, _view(goals, sites))
    return DONE


def set_class(name: str, quality: str, p99_s: float | None, client: Client, output: Output) -> int:
    """Set what a composition or pipeline is held to; 'none': as its project says."""
    path = f"/goals/{in_address(name, safe='')}"
    if quality == NONE:
        found = client.delete(path)
        text = f"'{name}' is held to what its project says"
    else:
        body: dict[str, Any] = {"class": quality} | ({} if p99_s is None else {"p99_s": p99_s})
        found = client.put(path, body)
        goal_s = p99_s if p99_s is not None else QUALITIES[quality].goal_s
        text = f"'{name}' is {quality}: 99 of 100 records within {show(goal_s, 'time')}"
    client.part(found, "goals")
    output.answer(found, Text(f"{plain(text)}. Sites hold it from the next second on."))
    return DONE


def set_policy(policy: str, client: Client, output: Output) -> int:
    """Set how sites hold goals."""
    found = client.put("/policy", {"policy": None if policy == DEFAULT else policy})
    held_by = plain(str(client.part(found, "policy") or "what each agent was told"))
    output.answer(found, Text(f"latency goals are held by {held_by}, from the next second on."))
    return DONE


def check_class(name: str, quality: str, p99_s: float | None) -> None:
    """Refuse what the controller would refuse, before anybody is asked.

    Raises:
        SpecError: HW1346.
    """
    trouble = name_trouble(name)
    if trouble is not None:
        text = f"there is no composition or pipeline {quote(name, 60)}: {trouble}."
        raise SpecError(Mistake("HW1346", text))
    known = (*QUALITIES, NONE)
    if quality not in known:
        text = f"there is no class {quote(quality, 60)}. Known are {', '.join(known)}.{near(quality, known)}"
        raise SpecError(Mistake("HW1346", text))
    if quality == NONE and p99_s is not None:
        raise SpecError(Mistake("HW1346", "'none' goes without --p99: it takes the goal away."))
    if p99_s is not None and not LEAST_GOAL_S <= p99_s <= MOST_GOAL_S:
        least, most = show(LEAST_GOAL_S, "time"), show(MOST_GOAL_S, "time")
        text = f"--p99 is {show(p99_s, 'time')}; a goal is at least {least} and at most {most}, such as '200 ms'."
        raise SpecError(Mistake("HW1346", text))


def _told(told: object) -> dict[str, Any]:
    """Return what an agent tells of its goals, with the keys that are asked for here; it cannot name another site."""
    goals = told.get("goals") if isinstance(told, dict) else None
    found = goals if isinstance(goals, dict) else {}
    others = {key: value for key, value in found.items() if key not in {"site", "is_reached"}}
    runners = found.get("runners")
    return {**others, "is_on": found.get("is_on") is True, "runners": runners if isinstance(runners, dict) else {}}


def _view(goals: Mapping[str, Any], sites: Sequence[Mapping[str, Any]]) -> RenderableType:
    parts: list[RenderableType] = [_site(site) for site in sites]
    names = ", ".join(plain(name) for name in goals)
    if any(site["is_on"] for site in sites):
        parts += [Text(f"set by 'set-class': {names}", style="dim")] if goals else []
    elif goals:
        parts.append(Text(f"set by 'set-class': {names}. No site holds it yet: goals are held where jobs run."))
    else:
        parts.append(
            Text(
                "Nobody here has a latency goal, so nothing is limited. Give a project 'goals: {class: gold}' in its "
                "headwater.yml, or say: headwater control set-class NAME gold"
            )
        )
    return Group(*parts)


def _site(site: Mapping[str, Any]) -> RenderableType:
    name = Text(f"site {plain(site['site'])}", style="bold")
    if not site["is_reached"]:
        return Group(name, Text("  does not answer; it holds its goals by itself, as it was last told", style="yellow"))
    if not site["is_on"]:
        return Group(name, Text("  holds no goals", style="dim"))
    head = f"  {_text(site.get('policy'), 'some policy')} by {_text(site.get('how'), 'some means')}"
    if "because" not in site and not site["runners"]:
        yet = "on, and has not decided yet: runners are measured first"
        return Group(name, Text(f"{head}; {yet}"))
    because = _text(site.get("because"), "")
    lines: list[RenderableType] = [name, Text(f"{head}; {because}" if because else head), _table(site["runners"])]
    gives_way = site.get("gives_way")
    for one in gives_way if isinstance(gives_way, list) else ():
        if isinstance(one, dict):
            lines.append(Text(f"  {_text(one.get('because'))}", style="bold yellow"))
    nonsense = _number(site.get("nonsense"))
    if nonsense:
        were = "1 reading was" if nonsense == 1 else f"{nonsense:g} readings were"
        lines.append(Text(f"  {were} missing or nonsense, and not used", style="yellow"))
    return Group(*lines)


def _table(runners: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in WORDS else "right")
    for runner, told in runners.items():
        row = told if isinstance(told, dict) else {}
        late_s, goal_s = _number(row.get("late_s")), _number(row.get("goal_s"))
        is_late = late_s is not None and goal_s is not None and late_s > goal_s
        table.add_row(
            _text(runner),
            _text(row.get("class")),
            _time(goal_s),
            Text(_time(late_s), style="red" if is_late else ""),
            _time(_number(row.get("predicted_s"))),
            *(_cores(row.get(key, UNKNOWN)) for key in ("demand", "share", "limit")),
            _text(row.get("because")),
        )
    return table


def _text(told: object, otherwise: str = UNKNOWN) -> str:
    """Return text that an agent tells, as it may be shown."""
    return plain(told[:MOST_TEXT]) if isinstance(told, str) and told else otherwise


def _number(told: object) -> float | None:
    """Return a number that an agent tells; None: it is none, or none that can be reckoned with."""
    if isinstance(told, bool) or not isinstance(told, int | float):
        return None
    try:
        number = float(told)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _time(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else show(seconds, "time")


def _cores(told: object) -> str:
    """Return a number of cores; an agent says that there is no limit by null."""
    if told is None:
        return "all"
    number = _number(told)
    if number is None:
        return UNKNOWN
    return f"{number:.2f}" if abs(number) < LARGE else f"{number:.3g}"

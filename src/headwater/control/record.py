"""How is a decision written down, so that it can be read and made again?

One entry is a mapping of plain values: what was measured, who shared the machine, and what followed. Entries begin
with one of kind 'begin' that names the policy, the shares that were set then and what the policy remembered; from there
on `replayed` makes every decision again and says where it differs from what was written down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, cast

import numpy as np

from headwater.control import forecast, mpc
from headwater.control.decision import Applications, Decision, applications
from headwater.control.policies import POLICIES, Paper, Policy, Predictive
from headwater.control.readings import COLUMNS, Floats, Readings
from headwater.errors import Mistake, SpecError
from headwater.model.quality import LOWEST, Quality

__all__ = ["Replayed", "begin_entry", "made_policy", "plain_state", "replayed", "state_of", "step_entry"]

SAME = 1e-9  # relative: how close a decision that was made again must be
MOST_STEPS = 1_000  # of a horizon; more was never decided with
# What can go wrong while a decision is made again from values that nobody wrote.
WRONG = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
FINITE = (  # of what is known; the rest may be unknown
    "done_rps", "used", "trend_rps", "told_rps", "came_rps", "miss", "plain_miss", "blend_miss", "demand", "trim",
    "held_back",
)  # fmt: skip
KEPT = ("share", "limit", "demand", "rate_rps", "late_s", "predicted_s")  # of a decision, for each application


def made_policy(name: str, shares: Mapping[str, float] | None = None, settings: mpc.Settings | None = None) -> Policy:
    """Return a policy by its name; a predictive one goes on from shares that are set already.

    Raises:
        KeyError: There is none of this name.
    """
    if name != "predictive":
        return POLICIES[name]()
    return Predictive(settings or mpc.Settings(), set_before=dict(shares or {}))


def begin_entry(
    now_s: float,
    policy: str,
    shares: Mapping[str, float],
    settings: mpc.Settings,
    known: mpc.State | Policy | None = None,
) -> dict[str, Any]:
    """Return the first entry of a record; `known`: what the policy knows already, or the policy, where it goes on."""
    return {
        "kind": "begin",
        "now_s": _plain(now_s),
        "policy": policy,
        "shares": {name: _plain(share) for name, share in shares.items()},
        "settings": asdict(settings),
        "known": plain_state(known) if isinstance(known, mpc.State) else _remembered(known),
    }


def step_entry(readings: Readings, apps: Applications, decision: Decision, weighs: bool = True) -> dict[str, Any]:
    """Return the entry of a decision; `weighs`: whether whoever set the limits keeps shares by weights."""
    plain = {one: asdict(one) for one in set(apps.qualities)}
    return {
        "kind": "step",
        "now_s": _plain(decision.now_s),
        "capacity": _plain(decision.capacity),
        "seconds": _plain(readings.seconds),
        "memory_bps": None if readings.memory_bps is None else _plain(readings.memory_bps),
        "names": list(readings.names),
        "readings": {key: [_plain(one) for one in readings.columns[key].tolist()] for key in COLUMNS},
        "applications": {
            name: {**plain[quality], "least": _plain(least), "most": _plain(most)}
            for name, quality, least, most in zip(
                apps.names, apps.qualities, apps.least.tolist(), apps.most.tolist(), strict=True
            )
        },
        "weighs": weighs,
        "decided": {
            name: _decided(decision, name, limit)
            for name, limit in zip(decision.names, decision.set_limits(weighs).tolist(), strict=True)
        },
        "gives_way": [{**asdict(one), "because": str(one)} for one in decision.gives_way],
        "nonsense": decision.nonsense,
        "because": decision.because,
    }


def _decided(decision: Decision, name: str, limit: float) -> dict[str, Any]:
    row = {**decision.row(name), "limit": limit}
    return {**{key: _plain(row[key]) for key in KEPT}, "because": row["because"]}


@dataclass(frozen=True, slots=True)
class Replayed:
    """A decision that was made again."""

    number: int  # of the entry, from 1
    now_s: float
    recorded: Mapping[str, Any]
    decision: Decision
    limits: Floats  # as they would have been set
    differs: tuple[str, ...]  # applications whose share or limit is another one


def replayed(
    entries: Iterable[Mapping[str, Any]], source: str, policy: str | None = None, lines: Sequence[int] = ()
) -> Iterator[Replayed]:
    """Make the decisions of a record again.

    Args:
        entries: Of the record, in order.
        source: Where they come from, for messages.
        policy: Another one than was used, to see what it would have decided.
        lines: Where each of them stands, for messages.

    Raises:
        SpecError: HW1345, an entry is not one, or there is no beginning.
    """
    chosen: Policy | None = None
    for number, entry in enumerate(entries, 1):
        try:
            if entry["kind"] == "begin":
                shares = {str(name): _number(share) for name, share in entry["shares"].items()}
                _check("its policy", entry["policy"], entry["policy"] in POLICIES)
                chosen = made_policy(policy or entry["policy"], shares, _settings(entry["settings"]))
                if policy in (None, entry["policy"]) and entry.get("known") is not None:
                    _remind(chosen, entry["known"])
                continue
            _check("its kind", entry["kind"], entry["kind"] == "step")
            if chosen is None:
                raise ValueError("there is no beginning before it")
            now_s = _number(entry["now_s"])
            _check("its time", now_s, math.isfinite(now_s))
            with np.errstate(all="ignore"):  # nobody measured what somebody may have written
                decision = chosen.decide(now_s, _readings(entry), _applications(entry), _number(entry["capacity"]))
            limits = decision.set_limits(bool(entry.get("weighs", True)))
            yield Replayed(number, now_s, entry, decision, limits, _differing(entry, decision, limits))
        except WRONG as error:
            text = f"entry {number} is none of a record of decisions: {_because(error)}"
            raise SpecError(Mistake("HW1345", text, source, lines[number - 1] if lines else None)) from error


def _because(error: Exception) -> str:
    """Say what is wrong with an entry; what Python says of values that nobody wrote helps nobody."""
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return str(error) if isinstance(error, ValueError) else "a value in it is of another kind than is written"


def _check(what: str, value: object, is_right: bool) -> None:
    if not is_right:
        raise ValueError(f"{what} is {value!r:.60}")


def _settings(value: Mapping[str, Any]) -> mpc.Settings:
    """Return settings with which a decision can be made."""
    unknown = sorted(map(str, set(value) - {one.name for one in fields(mpc.Settings)}))
    _check("a setting", ", ".join(unknown), not unknown)
    found = mpc.Settings(**value)
    _check("'horizon'", found.horizon, found.horizon in range(1, MOST_STEPS + 1))
    for key in ("interval_s", "response_s", "margin"):
        number = _number(getattr(found, key))
        _check(f"'{key}'", number, 0.0 < number < math.inf)
    for key in ("queue_part", "part"):
        number = _number(getattr(found, key))
        _check(f"'{key}'", number, 0.0 < number < 1.0)
    return found


def _readings(entry: Mapping[str, Any]) -> Readings:
    columns = {key: np.array([_number(one) for one in entry["readings"][key]], np.float64) for key in COLUMNS}
    names = tuple(str(name) for name in entry["names"])
    if any(len(column) != len(names) for column in columns.values()):
        raise ValueError("its columns are of different length")
    told = entry.get("memory_bps")
    return Readings(names, _number(entry["seconds"]), columns, None if told is None else _number(told))


def _applications(entry: Mapping[str, Any]) -> Applications:
    told = entry["applications"]
    qualities = tuple(
        Quality(str(one["name"]), float(one["goal_s"]), float(one["weight"]), float(one["tolerated"]))
        for one in told.values()
    )
    for name, one in zip(told, qualities, strict=True):
        _check(f"the goal of '{name}'", one.goal_s, 0.0 < one.goal_s < math.inf)
        _check(f"the weight of '{name}'", one.weight, 0.0 < one.weight < math.inf)
        _check(f"what '{name}' tolerates", one.tolerated, 0.0 < one.tolerated < 1.0)
    least, most = (np.array([_number(one[key]) for one in told.values()], np.float64) for key in ("least", "most"))
    for name, each, all_ in zip(told, least.tolist(), most.tolist(), strict=True):
        _check(f"the least share of '{name}'", each, 0.0 <= each < math.inf)
        _check(f"the most of '{name}'", all_, all_ >= 0.0)
    return applications(tuple(told), qualities, least, most)


def _differing(entry: Mapping[str, Any], decision: Decision, limits: Floats) -> tuple[str, ...]:
    def column(key: str) -> Floats:
        found = np.array([_number(entry["decided"][name][key]) for name in decision.names], np.float64)
        _check(f"a {key} that was decided", math.nan, not bool(np.isnan(found).any()))
        return found

    is_same = _alike(column("share"), decision.shares) & _alike(column("limit"), limits)
    return tuple(name for name, same in zip(decision.names, is_same.tolist(), strict=True) if not same)


def _alike(a: Floats, b: Floats) -> Any:
    with np.errstate(invalid="ignore"):
        is_near = np.abs(a - b) <= SAME * np.maximum(np.abs(a), np.abs(b))
    return (a == b) | (np.isfinite(a) & np.isfinite(b) & is_near)  # nothing is near to no limit at all


def plain_state(known: mpc.State) -> Any:
    """Return what the predictive policy knows as plain values."""
    return _encoded(known)


def state_of(value: Mapping[str, Any]) -> mpc.State:
    """Return what was written by `plain_state`.

    Raises:
        KeyError, TypeError, ValueError: It was not.
    """
    names = tuple(value["names"])
    _check("'names'", names, all(isinstance(name, str) for name in names))
    fresh = mpc.begin(applications(names, (LOWEST,) * len(names)))
    found = cast(mpc.State, _decoded(fresh, value))
    known = {key: getattr(found, key) for key in FINITE} | {
        one.name: getattr(found.history, one.name) for one in fields(found.history) if one.name != "settings"
    }
    for key, column in known.items():
        _check(f"'{key}'", math.nan, bool(np.isfinite(column).all()))
    known = {one.name: getattr(found.interference, one.name) for one in fields(found.interference)}
    for key, column in known.items():
        is_none = key == "ceiling_bps" and math.isnan(column)  # none was learned
        _check(f"'{key}'", math.nan, is_none or bool(np.isfinite(column).all()))
    _check("'settings'", found.history.settings, found.history.settings == fresh.history.settings)
    return found


def _remembered(chosen: Policy | None) -> Any:
    """Return what a policy remembers from one second to the next, as plain values; None: nothing."""
    if chosen is None or isinstance(chosen, Predictive):
        return None if chosen is None or chosen.state is None else plain_state(chosen.state)
    return _encoded(chosen)


def _remind(chosen: Policy, told: Mapping[str, Any]) -> None:
    """Let a policy that just began remember what was written by `_remembered`."""
    if isinstance(chosen, Predictive):
        chosen.state = state_of(told)
        return
    for one in fields(cast(Any, chosen)):
        if isinstance(chosen, Paper) and one.name in ("history", "before", "names"):
            continue
        kept, value = getattr(chosen, one.name), told[one.name]
        is_dict = isinstance(kept, dict)
        setattr(chosen, one.name, {str(k): _number(v) for k, v in value.items()} if is_dict else _decoded(kept, value))
    if isinstance(chosen, Paper) and told["history"] is not None:
        chosen.names = tuple(str(name) for name in told["names"])
        chosen.history = _decoded(forecast.begin(len(chosen.names)), told["history"])
        chosen.before = _decoded(np.zeros(len(chosen.names)), told["before"])


def _encoded(value: Any) -> Any:
    """Return what is known as plain values."""
    if is_dataclass(value):
        return {one.name: _encoded(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {name: _encoded(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        return _encoded(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_encoded(one) for one in value]
    return _plain(value) if isinstance(value, float) else value


def _decoded(like: Any, value: Any) -> Any:
    """Return what was encoded, of the same kind as something that is known."""
    if is_dataclass(like):
        found = {one.name: _decoded(getattr(like, one.name), value[one.name]) for one in fields(like)}
        return cast(Any, type(like))(**found)
    if isinstance(like, np.ndarray):
        if like.dtype.kind == "f":
            return np.array(_numbers(value), like.dtype).reshape(like.shape)
        return np.array(value, like.dtype).reshape(like.shape)
    if isinstance(like, tuple):
        return tuple(value)
    return _number(value) if isinstance(like, float) else value


def _numbers(value: Any) -> Any:
    return [_numbers(one) for one in value] if isinstance(value, list) else _number(value)


def _plain(value: float) -> float | str | None:
    """Return a number that JSON can carry: none that is none, and 'inf' for one without end."""
    if math.isfinite(value):
        return value
    return None if math.isnan(value) else ("inf" if value > 0.0 else "-inf")


def _number(value: float | str | None) -> float:
    return math.nan if value is None else float(value)

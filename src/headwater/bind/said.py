"""What of that which a runner says of its parts can be believed?

A runner holds the code of its user, so that whatever it says may be anything that JSON can carry. What comes out of
here has a known form, can be sent on and is bounded: one odd runner neither hides the others of its site nor fills
anything. What it says of its own numbers may still be wrong; that harms nobody else.

    HW4526   a runner does not say where its sources end in a form that can be kept
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import BindError
from headwater.plan.jobs import State

__all__ = ["STATES", "error_of", "parts_of", "places_of"]

# States of a runner's part, and what they are called for a job.
STATES: Mapping[str, State] = {
    "starting": "starting", "running": "running", "searching": "waiting", "waiting": "waiting", "stopped": "stopped",
    "failed": "failed",
}  # fmt: skip
NUMBERS = ("taken", "given", "lag", "attempts", "left_out", "set_aside")
WORDS = ("lane", "spec", "query")
MOST_PARTS, MOST_NOTES = 10_000, 20
LONGEST_WORD, LONGEST_NOTE, LONGEST_TEXT = 500, 1_000, 20_000  # characters
MOST = 2**53  # of a number: exact wherever JSON is read
MOST_PLACES, LONGEST_PLACE = 10_000, 1_000_000  # of sources; a place has a number for each partition


def parts_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a runner's answer says of its parts; what has no name or no known state is left out.

    >>> parts_of({"parts": [{"id": "a", "state": "running", "taken": -1}, {"id": "b"}, "c"]})[0]["taken"]
    0
    """
    found = answer.get("parts")
    if not isinstance(found, list):
        return []
    return [_part(one) for one in found[:MOST_PARTS] if isinstance(one, dict) and _is_named(one)]


def error_of(answer: Mapping[str, Any]) -> str:
    """Return what a runner that did not do as it was asked gives as its reason."""
    return _text(answer.get("error"), LONGEST_TEXT) or "it does not say why"


def places_of(answer: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return where a runner's answer says that the sources of a drained part end, and which are of which operator.

    Places are kept and sent on: what is cut or left out of them would be records lost or doubled.

    Raises:
        BindError: HW4526, it does not say, or nobody could keep it.
    """
    found, own = answer.get("positions"), answer.get("own", {})
    are_places = isinstance(found, dict) and len(found) <= MOST_PLACES and all(map(_is_kept, found.values()))
    are_own = isinstance(own, dict) and all(isinstance(one, list) and all(map(_is_kept, one)) for one in own.values())
    if not (are_places and are_own and all(map(_is_kept, [*(found or ()), *own]))):
        raise BindError(
            "HW4526 the runner stopped the job, but does not say where its sources end in a form that can be kept; "
            "the job goes on from its checkpoint. If it stays so, its code disturbs its runner: look at its log."
        )
    return dict(found or {}), own


def _is_kept(value: object) -> bool:
    """Return whether something is a text that can be written down and sent on as it is."""
    return _text(value, LONGEST_PLACE) == value


def _is_named(one: Mapping[str, Any]) -> bool:
    name, state = one.get("id"), one.get("state")
    return isinstance(name, str) and isinstance(state, str) and state in STATES


def _part(one: Mapping[str, Any]) -> dict[str, Any]:
    notes, failure = one.get("notes"), one.get("failure")
    return {
        "id": one["id"],
        "state": one["state"],
        **{key: _text(one.get(key), LONGEST_WORD) for key in WORDS},
        **{key: _number(one.get(key)) for key in NUMBERS},
        "notes": [_text(note, LONGEST_NOTE) for note in notes[:MOST_NOTES]] if isinstance(notes, list) else [],
        "failure": _text(failure.get("text"), LONGEST_TEXT) if isinstance(failure, dict) else "",
    }


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value <= MOST else 0


def _text(value: object, longest: int) -> str:
    """Return a text that can be sent on: half a pair of surrogates cannot."""
    return value[:longest].encode("utf-8", "replace").decode() if isinstance(value, str) else ""

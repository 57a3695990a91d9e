"""Where does an answer go?

With `--json` exactly one JSON object goes to standard output and nothing else; without it, a readable
form. A refusal (there is no answer) goes to standard error for people and to standard output as JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater.serve import wire

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Output"]

PIPED_WIDTH = 100  # columns when nobody says how wide the page is


class Output:
    """The two streams of one command."""

    def __init__(self, as_json: bool) -> None:
        """Choose the form."""
        self.as_json = as_json

    def answer(self, value: Mapping[str, Any], *readable: RenderableType) -> None:
        """Give the answer on standard output."""
        if self.as_json:
            sys.stdout.write(wire.text(value) + "\n")
        else:
            self._print(False, readable)

    def refusal(self, value: Mapping[str, Any], *readable: RenderableType) -> None:
        """Say why there is no answer: as JSON on standard output, for people on standard error."""
        if self.as_json:
            sys.stdout.write(wire.text(value) + "\n")
        self._print(True, readable)

    def _print(self, on_error: bool, readable: tuple[RenderableType, ...]) -> None:
        console = _console(on_error)
        for each in readable:
            console.print(each)


def _console(on_error: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415 - not needed for JSON

    class PipeConsole(Console):
        """Lets a closed pipe be handled where all errors are."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    console = PipeConsole(stderr=on_error, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    return console

"""How does the `headwater` command start and end?

Runs the command line and turns what happened into an exit code: 0 done, 2 the input is wrong, 3 no
valid answer, 4 the outside refused, 70 our bug; 130 after Ctrl-C, 141 when the reader of the output left.
Imports little by itself, so that help is there at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from headwater.bind.hurry import ahead
from headwater.errors import HeadwaterError, Mistake, SpecError
from headwater.serve.plain import plain

__all__ = ["main"]

WRONG_INPUT, REFUSED, OUR_BUG, INTERRUPTED, READER_LEFT = 2, 4, 70, 130, 141
DEBUG = "HEADWATER_DEBUG"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; messages and answers have then been written."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    try:
        code = _guarded(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go(sys.stdout)
        return READER_LEFT
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _let_go(sys.stdout)
        _say(f"HW4005 standard output cannot be written: {error.strerror or error}")
        return REFUSED
    return code


def _guarded(words: list[str]) -> int:
    """Run a command; every error becomes a message and an exit code."""
    as_json = "--json" in words
    try:
        return _run(words)
    except BrokenPipeError:
        raise
    except HeadwaterError as error:
        return _told(error, str(error), error.exit_code, as_json)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "headwater":
            return _bug(error, as_json)
        text = f"HW4006 the package '{error.name}' is missing; run 'make setup', or install Headwater again"
        return _told(HeadwaterError(text), text, REFUSED, as_json)
    except MemoryError as error:
        del error
        text = "HW4007 the memory of this machine is not enough for this problem; use fewer sites or another method"
        return _told(HeadwaterError(text), text, REFUSED, as_json)
    except Exception as error:  # noqa: BLE001 - the last net: whatever falls here is our bug
        return _bug(error, as_json)


def _run(words: list[str]) -> int:
    is_agent = words[:1] == ["agent"]
    if is_agent:
        ahead()  # its site may be full, and whoever comes after an agent that was killed is waited for
    import typer  # noqa: PLC0415 - a missing package must end in a sentence

    if is_agent:
        from headwater.serve.cli_plane import agent_app  # noqa: PLC0415 - the same

        app = agent_app()
    else:
        from headwater.serve.cli import app  # noqa: PLC0415 - the same

    try:
        code = app(words, prog_name="headwater", standalone_mode=False)
    except typer.TyperException as error:
        return _usage(error, "--json" in words)
    except typer.Abort:
        return INTERRUPTED
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # typer's own way to leave a closed pipe
            raise BrokenPipeError from None
        raise
    return code if isinstance(code, int) else 0


def _usage(error: Exception, as_json: bool) -> int:
    message = str(getattr(error, "format_message", error.__str__)()).strip()
    context = getattr(error, "ctx", None)
    if message:
        path = getattr(context, "command_path", "headwater")
        text = f"{message.removesuffix('.')}. Try '{path} --help'."
        return _told(SpecError(Mistake("HW1300", text)), f"HW1300 {text}", WRONG_INPUT, as_json)
    return WRONG_INPUT  # help was shown instead


def _bug(error: BaseException, as_json: bool) -> int:
    if os.environ.get(DEBUG) == "1":
        import traceback  # noqa: PLC0415 - only for us

        traceback.print_exception(error)
    what = " ".join(f"{type(error).__name__}: {error}".split()) if str(error) else type(error).__name__
    code = "" if str(error).startswith("HW9") else "HW9000 "
    text = (
        f"{code}this is a bug of Headwater, not of your files ({what}); please report it with the command that "
        f"you ran and what it prints with {DEBUG}=1"
    )
    return _told(HeadwaterError(text), text, OUR_BUG, as_json)


def _told(error: HeadwaterError, text: str, code: int, as_json: bool) -> int:
    if as_json:
        from headwater.serve import wire  # noqa: PLC0415 - only for programs

        sys.stdout.write(wire.text(wire.error_object(error)) + "\n")
    _say(text)
    return code


def _say(text: str) -> None:
    try:
        sys.stderr.write(plain(text, keep="\n") + "\n")
        sys.stderr.flush()
    except OSError:  # nobody is left to tell
        _let_go(sys.stderr)


def _prepare_streams() -> None:
    """Make both streams exist and take any name, whatever the terminal's alphabet is."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - lives as long as the process
            continue
        reconfigure: Callable[..., None] | None = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _let_go(stream: object) -> None:
    """Point a stream that can take nothing more to nowhere, so that the interpreter ends without complaint."""
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())

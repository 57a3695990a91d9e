"""How does `headwater serve` go?

Puts the controller together from its parts: the store and the uploads in the state folder, the desk that agents dial
in to, the loop, and the REST face of all of it. One controller for a state folder: a second one refuses. Nothing that
runs needs it; when it comes back, agents say hello, and it goes on with what they hold.

    HW4606   another controller uses the state folder
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path

from headwater.bind.keyring import write_private
from headwater.bind.store import Store
from headwater.bind.tokens import Tokens
from headwater.bind.uploads import Uploads
from headwater.errors import Mistake, SpecError
from headwater.serve.alone import alone
from headwater.serve.api import make_app
from headwater.serve.api_agents import router
from headwater.serve.control_options import Serve
from headwater.serve.controller import Controller
from headwater.serve.desk import Desk
from headwater.serve.listen import serve_forever
from headwater.serve.progress import note
from headwater.serve.until import until_told

__all__ = ["serve"]

DONE = 0


def serve(options: Serve) -> int:
    """Answer until told to end; return the exit code."""
    state = options.state.absolute()
    if (options.cert is None) != (options.key is None):
        raise SpecError(
            Mistake("HW1322", "--cert and --key belong together: a certificate is of no use without its key")
        )
    tls = None if options.cert is None or options.key is None else (options.cert, options.key)
    refusal = (
        f"HW4606 another controller uses the state folder '{state}', and two would undo each other's work. "
        "Use that one, end it first, or take another --state."
    )
    with alone(state, "lock", refusal):
        os.umask(0o077)  # what the controller writes is for its user alone
        state.chmod(0o711)  # jobs of agents below may run as another user, who must come through
        store = Store(state / "store.db")
        tokens = Tokens(store)
        tokens.ensure_operator(state / "operator.token")
        uploads = Uploads(state / "uploads")
        desk = Desk(
            state / "uploads",
            state / "spool",
            store.held,
            store.keep_held,
            lambda: {"goals": dict(store.goals()), "policy": store.policy()},
        )
        controller = Controller(store, desk, uploads)
        app = make_app(controller, router(desk), tokens)
        told = state / "controller.json"

        def ready(port: int) -> None:
            host = f"[{options.host}]" if ":" in options.host else options.host
            url = f"{'http' if tls is None else 'https'}://{host}:{port}"
            found = {"url": url, "pid": os.getpid(), "ca": None if options.ca is None else str(options.ca.absolute())}
            write_private(told, json.dumps(found).encode())
            told.with_name("port").write_text(str(port), "ascii")  # agents know this one
            controller.start()
            if options.as_json:
                sys.stdout.write(json.dumps({"event": "ready", "controller": url}) + "\n")
                sys.stdout.flush()
            note(f"the controller answers at {url}; the commands' token is in '{state / 'operator.token'}'")

        with until_told() as stop:
            try:
                serve_forever(app, options.host, _port(options, told), tls, ready, stop)
            finally:
                desk.close()  # first: the loop may be waiting for an agent that is silent
                controller.close()
                store.close()
                told.unlink(missing_ok=True)
    return DONE


def _port(options: Serve, told: Path) -> int:
    """Return the port: the one that was asked for, or where any will do the one that agents know from before."""
    if options.port == 0:
        with contextlib.suppress(OSError, ValueError, KeyError):
            return int(told.with_name("port").read_text("ascii"))
    return options.port

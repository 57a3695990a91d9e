"""Who is let in?

Makes, lists and revokes the tokens of agents, and makes the authority and the certificate for TLS. A token is
shown once, to whoever made it, and goes to a file that only its owner reads or to standard output.

    HW1337   a file for a token that is there already
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headwater.errors import BindError, Mistake, SpecError
from headwater.model.report import quote
from headwater.serve import disk, wire
from headwater.serve.client import Client, in_address
from headwater.serve.control_view import tokens_view
from headwater.serve.output import Output
from headwater.serve.progress import note
from headwater.serve.told import rows

__all__ = ["create_token", "list_tokens", "make_certificates", "revoke_token"]

DONE = 0
CONTROLLER = "controller"  # the name of its certificate


def create_token(site: str, out: str | None, client: Client, output: Output) -> int:
    """Make a token for a site's agent, and write it to a new file or to standard output.

    Raises:
        SpecError: HW1337.
    """
    if out is not None:
        disk.check_writable(out)
        if os.path.lexists(out):  # before a token is made that could then not be kept
            raise SpecError(Mistake("HW1337", "this file is there already; name another one for the token", out))
    said = client.post("/tokens", {"site": site})
    number, token = str(said["id"]), str(said["token"])
    revoke = f"'headwater token revoke {number}' ends it"
    if out is None:
        sys.stdout.write((wire.text({"id": number, "site": site, "token": token}) if output.as_json else token) + "\n")
        note(f"this is the token of site {quote(site)}, shown this once; {revoke}")
        return DONE
    _write_new(out, token)
    text = f"the token of site {quote(site)} is in '{out}'; {revoke}"
    output.answer({"id": number, "site": site, "file": out}, text)
    return DONE


def list_tokens(client: Client, output: Output) -> int:
    """Show which tokens there are, without what they are."""
    entries = rows(client.get("/tokens"), "tokens")
    output.answer({"tokens": entries}, tokens_view(entries))
    return DONE


def revoke_token(number: str, client: Client, output: Output) -> int:
    """End a token: whoever has it is not let in any more."""
    client.delete(f"/tokens/{in_address(number, safe='')}")
    output.answer({"id": number, "is_revoked": True}, f"token {number} is revoked")
    return DONE


def make_certificates(folder: Path, name: str, hosts: Sequence[str], output: Output) -> int:
    """Make an authority, and a certificate if hosts are named."""
    from headwater.bind.certificates import issue, make_ca  # noqa: PLC0415 - cryptography is not needed elsewhere

    made = issue(folder, name, hosts) if hosts else make_ca(folder)
    ca = make_ca(folder)
    value = {"ca": str(ca.certificate), "ca_key": str(ca.key), "ca_ends_at": ca.ends_at.isoformat()}
    lines = [f"authority    {ca.certificate}  (good until {ca.ends_at:%Y-%m-%d}; its key stays here: {ca.key.name})"]
    if hosts:
        value |= {"certificate": str(made.certificate), "key": str(made.key), "ends_at": made.ends_at.isoformat()}
        value |= {"hosts": ", ".join(hosts)}
        lines.append(f"certificate  {made.certificate}  (for {', '.join(hosts)}, until {made.ends_at:%Y-%m-%d})")
        lines.append(f"key          {made.key}")
        command = "serve" if name == CONTROLLER else f"agent --site {name}"
        lines.append(
            f"use it       headwater {command} --cert {made.certificate} --key {made.key} --ca {ca.certificate}"
        )
    lines.append(f"elsewhere    HEADWATER_CA={ca.certificate.name}, after a copy of {ca.certificate} came there")
    output.answer(value, "\n".join(lines))
    return DONE


def _write_new(path: str, token: str) -> None:
    """Write a file that only its owner reads, from its first moment on."""
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(token + "\n")
    except OSError as error:
        why = error.strerror or str(error)
        raise BindError(f"HW4003 {path}: this file cannot be written: {why}. The token is lost: revoke it.") from error

"""What can be asked of the processes that stay: controller, agent, and all of it on one machine?

One value for each command, made by `serve.cli_plane` and taken by the module that does the work.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["STATE", "Agent", "Down", "Serve", "Up", "state_folder"]

STATE = "HEADWATER_STATE"


def state_folder(state: str | None) -> Path:
    """Return the state folder that was named, or the usual one."""
    return Path(state or os.environ.get(STATE) or Path.home() / ".headwater").expanduser()


@dataclass(frozen=True, slots=True)
class Serve:
    """How a controller is to be."""

    state: Path  # what it keeps; made if it is not there
    host: str  # where it listens
    port: int  # 0: a free one
    cert: Path | None  # with `key`, https; without, only loopback
    key: Path | None
    ca: Path | None  # what commands and agents check the certificate against; told in controller.json
    as_json: bool = False  # say what happens as JSON, one object a line


@dataclass(frozen=True, slots=True)
class Agent:
    """How a site's agent is to be."""

    site: str
    controller: str  # URL
    state: Path  # its records, checkpoints and the broker's data
    token_file: Path | None  # None: HEADWATER_TOKEN or HEADWATER_TOKEN_FILE
    ca: Path | None  # that signed the controller's certificate; None: HEADWATER_CA, or the system's
    listen: str  # address on which the broker listens, and by which other sites reach it
    address: str | None  # another name by which 'spe_address' may call this site
    broker: str | None  # host:port of a broker of the user's, in place of one of our own
    run_as: str | None  # user that runners run as, where the agent is root
    cert: Path | None = None  # of the broker, where it listens beyond loopback
    key: Path | None = None
    as_json: bool = False
    control: str = "predictive"  # policy by which latency goals are held


@dataclass(frozen=True, slots=True)
class Up:
    """All of it on one machine."""

    sites: Path  # sites file: an agent for every site with slots
    state: Path
    is_emulated: bool  # links and machines as the sites file says
    port: int  # of the controller; 0: a free one
    detach: bool  # return when all is up, and leave it running
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Down:
    """The end of what `Up` began."""

    state: Path
    as_json: bool = False

"""What can be asked to run, and who is let in?

The processes that stay (`serve`, `agent`, `up`, `down`) and what lets others in (`token`, `ca`). Declared as those
in `serve.cli`; `serve.cli_control` takes them in. The work is done by the modules that each command names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "SETTINGS",
    "Controller",
    "Json",
    "State",
    "add_commands",
    "agent",
    "agent_app",
    "ca",
    "create",
    "down",
    "list_them",
    "revoke",
    "serve",
    "token_app",
    "up",
]

PANEL = "Controller and agents"
SETTINGS: Any = {  # of the command line as a whole
    "name": "headwater",
    "add_completion": False,
    "rich_markup_mode": "rich",
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
Controller = Annotated[
    str | None,
    typer.Option(
        "--controller", metavar="URL", help="The controller; else HEADWATER_CONTROLLER, else that of --state."
    ),
]
State = Annotated[
    str | None,
    typer.Option("--state", metavar="DIR", help="State folder of the controller; else HEADWATER_STATE, ~/.headwater."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in base units on standard output.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Say what happens as JSON, one object a line.")]
Certificate = Annotated[
    str | None, typer.Option("--ca", metavar="FILE", help="Certificate of the authority that others check against.")
]

token_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Make, list and revoke the tokens of agents.

Nothing answers without a token. An agent's opens only what is of its own
site; the operator's, which the commands use, lies in the state folder.""",
)


def serve(
    state: State = None,
    host: Annotated[str, typer.Option(help="Where to listen; anything but loopback needs --cert.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: a free one.")] = 8470,
    cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate (PEM): https.")] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    ca: Certificate = None,
    json: JsonLines = False,
) -> None:
    """Run the controller: the REST API, and the loop behind it.

    Keeps what is wanted in its state folder, looks at what the sites hold,
    and lets agents do what is missing. What runs needs no controller: it may
    be ended and started again at any time. At its first start it makes the
    token that the commands use (operator.token in the state folder).

    [bold]Example[/bold]

    headwater serve --state /tmp/control

    headwater serve --host 0.0.0.0 --cert controller.pem --key controller.key --ca ca.pem
    """
    from headwater.serve.control_options import Serve, state_folder
    from headwater.serve.serving import serve as work

    given = Serve(state_folder(state), host, port, _path(cert), _path(key), _path(ca), json)
    raise typer.Exit(work(given))


def agent(
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="The site that this machine is.")],
    controller: Annotated[str, typer.Option("--controller", metavar="URL", help="Where the controller listens.")],
    state: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Checkpoints, records and broker data; else ~/.headwater/agents/NAME."),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Its token; else HEADWATER_TOKEN or HEADWATER_TOKEN_FILE."),
    ] = None,
    ca: Annotated[
        str | None, typer.Option("--ca", metavar="FILE", help="Who signed the controller's certificate.")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST", help="Address that the broker listens on; not loopback: with --cert.")
    ] = "127.0.0.1",
    cert: Annotated[str | None, typer.Option(metavar="FILE", help="Certificate of the broker (PEM).")] = None,
    key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key.")] = None,
    address: Annotated[
        str | None, typer.Option(metavar="LABEL", help="What 'spe_address' may also call this site.")
    ] = None,
    broker: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this broker of yours; none is started.")
    ] = None,
    run_as: Annotated[
        str | None, typer.Option(metavar="USER", help="Where the agent is root: the user that jobs run as.")
    ] = None,
    control: Annotated[
        str, typer.Option(metavar="POLICY", help="How latency goals are held; 'headwater control policies' lists them.")
    ] = "predictive",
    json: JsonLines = False,
) -> None:
    """Run a site's agent: it starts and watches the site's broker and jobs.

    Dials out to the controller and listens on nothing itself, so that a site
    behind a firewall works. Broker and jobs outlive it; when it is started
    again, it adopts them.

    [bold]Example[/bold]

    headwater token create edge-1 --out edge-1.token    (at the controller)

    headwater agent --site edge-1 --controller https://control.example:8470 --token-file edge-1.token --ca ca.pem
    """
    from headwater.serve import arguments
    from headwater.serve.agent_main import run_agent
    from headwater.serve.control_options import Agent, state_folder

    arguments.check_policy("--control", control)
    folder = state_folder(None) / "agents" / site if state is None else state_folder(state)
    given = Agent(
        site,
        controller,
        folder,
        _path(token_file),
        _path(ca),
        listen,
        address,
        broker,
        run_as,
        _path(cert),
        _path(key),
        json,
        control,
    )
    raise typer.Exit(run_agent(given))


def up(
    sites: Annotated[str, typer.Option("--sites", metavar="SITES", help="Sites file: an agent for every site.")],
    state: State = None,
    emulate: Annotated[
        bool, typer.Option("--emulate", help="Links and machines as slow as the sites file says.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the controller; 0: a free one.")] = 0,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return when all is up; it stays.")] = False,
    json: JsonLines = False,
) -> None:
    """Start a controller and an agent for every site, all on this machine.

    The shortest way to a control plane that works. Runs until Ctrl-C, or
    with --detach until 'headwater down'. What was deployed is there again at
    the next start with the same state folder.

    [bold]Example[/bold]

    headwater up --sites examples/readings/sites.yaml --detach
    """
    from headwater.serve.control_options import Up, state_folder
    from headwater.serve.up import up as work

    raise typer.Exit(work(Up(Path(sites), state_folder(state), emulate, port, detach, json)))


def down(state: State = None, json: Json = False) -> None:
    """End what 'headwater up' started: jobs, brokers, agents, controller.

    The state folder stays: the next 'headwater up' goes on where this ends.

    [bold]Example[/bold]

    headwater down
    """
    from headwater.serve.control_options import Down, state_folder
    from headwater.serve.up import down as work

    raise typer.Exit(work(Down(state_folder(state), json)))


@token_app.command()
def create(
    site: Annotated[str, typer.Argument(metavar="SITE", help="Whose agent it is for.", show_default=False)],
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write it here, readable by you alone; else it is printed.")
    ] = None,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Make a token for a site's agent; it is shown this once.

    [bold]Example[/bold]

    headwater token create edge-1 --out edge-1.token
    """
    from headwater.serve.access import create_token
    from headwater.serve.client import Client, find
    from headwater.serve.output import Output

    with Client(find(controller, state)) as client:
        raise typer.Exit(create_token(site, out, client, Output(json)))


@token_app.command("list")
def list_them(controller: Controller = None, state: State = None, json: Json = False) -> None:
    """List tokens: number, site, when it was made, whether it is revoked.

    [bold]Example[/bold]

    headwater token list
    """
    from headwater.serve.access import list_tokens
    from headwater.serve.client import Client, find
    from headwater.serve.output import Output

    with Client(find(controller, state)) as client:
        raise typer.Exit(list_tokens(client, Output(json)))


@token_app.command()
def revoke(
    number: Annotated[str, typer.Argument(metavar="ID", help="As 'headwater token list' shows.", show_default=False)],
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """End a token: its agent is not let in any more.

    What the site runs goes on; it can be changed again when its agent has
    another token.

    [bold]Example[/bold]

    headwater token revoke 3
    """
    from headwater.serve.access import revoke_token
    from headwater.serve.client import Client, find
    from headwater.serve.output import Output

    with Client(find(controller, state)) as client:
        raise typer.Exit(revoke_token(number, client, Output(json)))


def ca(
    folder: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where it lies; else the state folder.", show_default=False)
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Name or address that a certificate is made for; may be repeated."),
    ] = None,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Whose certificate: the controller's, or a site's for its broker.")
    ] = "controller",
    json: Json = False,
) -> None:
    """Make an authority of your own, and certificates that it signs.

    Asks nobody. What is there and good is kept. ca.pem goes to every machine
    that talks to the controller; ca.key stays here.

    [bold]Example[/bold]

    headwater ca --folder tls --host control.example --host 10.0.0.5

    headwater ca --folder tls --name edge-1 --host 10.0.0.7
    """
    from headwater.serve.access import make_certificates
    from headwater.serve.control_options import state_folder
    from headwater.serve.output import Output

    raise typer.Exit(make_certificates(state_folder(folder), name, host or [], Output(json)))


def agent_app() -> typer.Typer:
    """Return a command line that has `headwater agent` alone.

    To declare all commands takes longer than an agent has that comes after one that was killed.
    """
    app = typer.Typer(**SETTINGS)
    app.callback()(lambda: None)  # with one command alone, its name would not be a word of the command line
    app.command()(agent)
    return app


def add_commands(app: typer.Typer) -> None:
    """Take the commands into the command line."""
    for command in (serve, agent, up, down, ca):
        app.command(rich_help_panel=PANEL)(command)
    app.add_typer(token_app, name="token", rich_help_panel=PANEL)


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given)

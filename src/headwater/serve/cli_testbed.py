"""What can be asked about a testbed?

The commands under `headwater testbed`. Declared as those in `serve.cli`, which takes them in; imports wait
until a command needs them.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app", "down", "execute", "link", "status", "up"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Emulate a wide-area network of unequal machines on this one.

Every site of a sites file gets a network of its own, every link its delay
and bandwidth, every machine its share of processors and memory. Needs root;
without, 'headwater run --emulate' makes one for itself, with links only.""",
)
SitesFile = Annotated[str, typer.Argument(metavar="SITES", help="Sites file, YAML or JSON; '-' for standard input.")]
Name = Annotated[str, typer.Option("--name", help="Which testbed: several may be up at once.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in base units on standard output.")]
DEFAULT = "bed"


@app.command()
def up(
    sites: SitesFile,
    name: Name = DEFAULT,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Measure each link's delay, and say when one is off.")
    ] = True,
    rates: Annotated[bool, typer.Option("--rates", help="Measure bandwidths too: 2 s for each direction.")] = False,
    json: Json = False,
) -> None:
    """Bring a testbed up.

    It stays until 'headwater testbed down'. 'headwater testbed exec' runs
    programs in it.

    [bold]Example[/bold]

    headwater testbed up examples/fire/sites.yaml
    """
    from headwater.serve import testbed
    from headwater.serve.output import Output

    raise typer.Exit(testbed.up(sites, name, check, rates, Output(json)))


@app.command()
def down(
    name: Annotated[str | None, typer.Option("--name", help="Which testbed; without it, all.")] = None,
    json: Json = False,
) -> None:
    """Remove a testbed and everything that runs in it.

    Finds what is left by its name, also after a crash.

    [bold]Example[/bold]

    headwater testbed down
    """
    from headwater.serve import testbed
    from headwater.serve.output import Output

    raise typer.Exit(testbed.down(name, Output(json)))


@app.command()
def status(name: Name = DEFAULT, json: Json = False) -> None:
    """Say how a testbed is: sites, limits, links, what they have carried.

    [bold]Example[/bold]

    headwater testbed status
    """
    from headwater.serve import testbed
    from headwater.serve.output import Output

    raise typer.Exit(testbed.status(name, Output(json)))


@app.command()
def link(
    a: Annotated[str, typer.Argument(metavar="A", help="A site.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The site at the other end.")],
    latency: Annotated[str | None, typer.Option(metavar="TIME", help="One way, such as 40 ms.")] = None,
    rate: Annotated[str | None, typer.Option(metavar="BANDWIDTH", help="Each way, such as 10 Mbit/s.")] = None,
    loss: Annotated[float | None, typer.Option(metavar="SHARE", min=0, max=1, help="Of packets, such as 0.01.")] = None,
    cut: Annotated[bool, typer.Option("--cut", help="Let nothing through.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="End a cut.")] = False,
    name: Name = DEFAULT,
    json: Json = False,
) -> None:
    """Change a link while everything runs.

    [bold]Example[/bold]

    headwater testbed link pi hub --latency 80ms --rate 10Mbit/s

    headwater testbed link pi hub --cut
    """
    from headwater.serve import testbed
    from headwater.serve.output import Output

    wanted = testbed.Change(latency, rate, loss, cut, restore)
    raise typer.Exit(testbed.link(name, a, b, wanted, Output(json)))


@app.command("exec", context_settings={"allow_interspersed_args": False})
def execute(
    site: Annotated[str, typer.Argument(metavar="SITE", help="Which site.")],
    command: Annotated[list[str], typer.Argument(metavar="COMMAND ..", help="What to run there.")],
    name: Name = DEFAULT,
    json: Annotated[
        bool, typer.Option("--json", help="Print the words that would be run, and do not run them.")
    ] = False,
) -> None:
    """Run a command inside a site.

    It has the site's network and share of processors. Options come before
    the name of the site.

    [bold]Example[/bold]

    headwater testbed exec pi ping hub
    """
    from headwater.serve import testbed
    from headwater.serve.output import Output

    raise typer.Exit(testbed.execute(name, site, command, Output(json)))

"""What can be asked on the command line?

Declares every command, its options and the help that teaches it, and nothing more: files are read by
`load`, the work is done by `commands`. Imports of the core wait until a command needs them, because
`headwater --help` must answer at once.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headwater.serve import cli_bench, cli_control, cli_hold, cli_pack, cli_simulate, cli_testbed
from headwater.serve.cli_plane import SETTINGS
from headwater.serve.cli_run import add_commands

__all__ = ["app"]

app = typer.Typer(
    **SETTINGS,
    no_args_is_help=True,
    help="""Run a streaming pipeline across machines of unequal strength.

Headwater takes a Spark Declarative Pipelines project and sites joined by
slow links, finds which site should run each operator, with a proof of how
far from the best possible the answer is, and runs the project cut across
the sites on Spark and Kafka.

Start with: headwater compare examples/fire/fire.yaml examples/fire/flat.yaml
or with:    headwater inspect examples/readings""",
    epilog="Exit codes: 0 done, 2 wrong input, 3 no valid answer, 4 the outside refused, 70 our bug.",
)
sites_app = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", help="Make sites files from other sources.")
app.add_typer(sites_app, name="sites")
app.add_typer(cli_testbed.app, name="testbed")
app.add_typer(cli_bench.app, name="bench")
app.add_typer(cli_hold.app, name="control")

PipelineFile = Annotated[
    str, typer.Argument(metavar="PIPELINE", help="Pipeline file, YAML or JSON; '-' for standard input.")
]
SitesFile = Annotated[str, typer.Argument(metavar="SITES", help="Sites file, YAML or JSON; '-' for standard input.")]
PLACEMENT_HELP = "Placement file, YAML or JSON: {operator: site}; '-' for standard input."
PlacementFile = Annotated[str, typer.Argument(metavar="PLACEMENT", help=PLACEMENT_HELP)]
MaybePlacement = Annotated[str | None, typer.Argument(metavar="PLACEMENT", help=PLACEMENT_HELP, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in base units on standard output.")]
MethodName = Annotated[str, typer.Option("--method", help="How to search; 'headwater methods' lists the names.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same answer.")]
Seconds = Annotated[
    float | None, typer.Option(metavar="S", help="Stop searching after S seconds of wall time.", show_default=False)
]
MACHINE = "CLASS:SLOTS:SPEED"


def _version(is_asked: bool) -> None:
    if is_asked:
        from headwater import __version__

        typer.echo(f"headwater {__version__}")
        raise typer.Exit


def _commands() -> Any:
    """Return the module that does the work; it loads the search, so files are checked before this is called."""
    from headwater.serve.kernels import load_core

    return load_core("headwater.serve.commands")


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that come before the command."""
    del version  # its callback has acted


@app.command()
def score(pipeline: PipelineFile, sites: SitesFile, placement: PlacementFile, json: Json = False) -> None:
    """Judge a placement: what does it cost, and is it valid?

    Computes F and its three parts: response time RT (the longest path from a
    source to a sink), load above bandwidth BW and missing machine classes RF.
    Names the critical path, overloaded sites and congested links. A placement
    that breaks a rule has no F but reasons, and exit code 3.

    [bold]Example[/bold]

    cd examples/fire

    headwater place fire.yaml flat.yaml --out placement.yaml

    headwater score fire.yaml flat.yaml placement.yaml
    """
    from headwater.serve.load import load
    from headwater.serve.output import Output

    loaded = load(pipeline, sites, placement)
    raise typer.Exit(_commands().score(loaded, Output(json)))


@app.command()
def place(
    pipeline: PipelineFile,
    sites: SitesFile,
    method: MethodName = "auto",
    seed: Seed = 0,
    seconds: Seconds = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the placement here: JSON for .json, else YAML.", show_default=False),
    ] = None,
    draw: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the placement here: .svg or .png.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Find which site should run each operator.

    Searches for the valid placement with the least F and proves a lower bound:
    no valid placement can be better than that. Shows operators by site, F and
    its parts, the gap to the bound, the critical path, and how the answer came
    about. When no valid placement exists, says what rules out each site
    (exit code 3).

    [bold]Example[/bold]

    headwater place examples/fire/fire.yaml examples/fire/flat.yaml
    """
    from headwater.serve import arguments, disk
    from headwater.serve.load import load
    from headwater.serve.output import Output

    search = arguments.search(method, seed, seconds)
    if out is not None:
        disk.check_writable(out)
    if draw is not None:
        arguments.check_picture(draw)
    loaded = load(pipeline, sites)
    raise typer.Exit(_commands().place(loaded, search, out, draw, Output(json)))


@app.command()
def compare(
    pipeline: PipelineFile,
    sites: SitesFile,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,C", help="Only these methods, with commas between.", show_default=False)
    ] = None,
    seed: Seed = 0,
    seconds: Seconds = None,
    json: Json = False,
) -> None:
    """Place with every method and show them side by side.

    One row for each method: F, RT, BW, RF, the gap to its proven bound, the
    time it took and whether it proved its answer. The best row is marked. A
    method that the problem is too large for is shown with the reason.
    --seconds holds for each method by itself.

    [bold]Example[/bold]

    headwater compare examples/fire/fire.yaml examples/fire/flat.yaml
    """
    from headwater.serve import arguments
    from headwater.serve.load import load
    from headwater.serve.output import Output

    search = arguments.search("", seed, seconds)
    names = arguments.method_names(methods)
    loaded = load(pipeline, sites)
    raise typer.Exit(_commands().compare(loaded, names, search, Output(json)))


@app.command()
def draw(
    pipeline: PipelineFile,
    sites: SitesFile,
    out: Annotated[str, typer.Option(metavar="FILE", help="Where the picture goes: .svg or .png.")],
    placement: MaybePlacement = None,
    json: Json = False,
) -> None:
    """Draw a placement on its sites.

    The picture shows sites, links with their load, operators on their sites
    and the critical path. Without PLACEMENT, one is searched for first, as
    'headwater place' does by default.

    [bold]Example[/bold]

    headwater draw examples/fire/fire.yaml examples/fire/flat.yaml --out fire.svg
    """
    from headwater.serve import arguments
    from headwater.serve.load import load
    from headwater.serve.output import Output

    arguments.check_picture(out)
    loaded = load(pipeline, sites, placement)
    raise typer.Exit(_commands().draw(loaded, arguments.Search(), out, Output(json)))


@sites_app.command("import")
def import_sites(
    file: Annotated[
        str, typer.Argument(metavar="FILE.graphml", help="A network map in GraphML; '-' for standard input.")
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the sites here: JSON for .json, else YAML.", show_default=False),
    ] = None,
    leaves: Annotated[
        list[str] | None,
        typer.Option(metavar="WHICH", help="degree-1 (sites with one link), a count, or a name; may be repeated."),
    ] = None,
    roots: Annotated[
        list[str] | None,
        typer.Option(metavar="WHICH", help="center (least total latency), or a name; may be repeated."),
    ] = None,
    leaf: Annotated[str, typer.Option(metavar=MACHINE, help="What a leaf is given.")] = "low:2:1",
    middle: Annotated[str, typer.Option(metavar=MACHINE, help="What a site between is given.")] = "medium:4:2",
    root: Annotated[str, typer.Option(metavar=MACHINE, help="What a root is given.")] = "high:64:4",
    bandwidth: Annotated[str, typer.Option(help="Of a link whose speed is not stated.")] = "1 Gbit/s",
    latency: Annotated[str, typer.Option(help="Of a link with an end that has no coordinates.")] = "5 ms",
    route_factor: Annotated[float, typer.Option(help="Length of a cable over the straight distance.")] = 1.0,
    connected: Annotated[
        bool, typer.Option("--connected", help="Refuse a map in several parts instead of keeping the largest.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a sites file from a network map.

    Latency comes from the distance between coordinates at the speed of light
    in fibre, bandwidth from the speed that a link states; options fill in what
    the map leaves out, and every assumption is told on standard error. Prints
    YAML unless --out names a file.

    [bold]Example[/bold]

    headwater sites import network.graphml --leaves 10 --out sites.yaml
    """
    from headwater.serve import disk
    from headwater.serve.import_sites import import_sites as run
    from headwater.serve.import_sites import options
    from headwater.serve.output import Output

    if out is not None:
        disk.check_writable(out)
    chosen = options(
        leaves or ["degree-1"], roots or ["center"], (leaf, middle, root), bandwidth, latency, route_factor, connected
    )
    raise typer.Exit(run(file, chosen, out, Output(json)))


@app.command()
def methods(json: Json = False) -> None:
    """List the methods of placement and of packing, and what each does.

    [bold]Example[/bold]

    headwater methods
    """
    from headwater.serve.output import Output

    raise typer.Exit(_commands().methods(Output(json)))


@app.command()
def doctor(
    compile_now: Annotated[
        bool, typer.Option("--compile", help="Compile the search kernels now if they are not.")
    ] = False,
    prepare_now: Annotated[
        bool, typer.Option("--prepare", help="Do all that is done once: compile, fetch the jars, prepare Java.")
    ] = False,
    json: Json = False,
) -> None:
    """Say what is installed, what is missing and how to get it.

    Looks for Python, the packages, the compiled search kernels, Java and the
    jars. Exit code 0 when everything that the commands need is there, 4 when
    something is missing.

    [bold]Example[/bold]

    headwater doctor
    """
    from headwater.serve.doctor import doctor as run
    from headwater.serve.output import Output

    raise typer.Exit(run(Output(json), compile_now, prepare_now))


add_commands(app)
cli_pack.add_commands(app)
cli_control.add_commands(app)
cli_simulate.add_commands(app)

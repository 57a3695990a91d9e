"""What can be asked about a project of the user's?

The commands that take a declarative pipeline project: `inspect`, `run`, `feed`. Declared as those in
`serve.cli`, which takes them in; imports wait until a command needs them.
"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_commands"]

ProjectPath = Annotated[
    str,
    typer.Argument(
        metavar="PROJECT", help="A folder with spark-pipeline.yml, that file, or a single .py file.", show_default=False
    ),
]
SitesOption = Annotated[str, typer.Option("--sites", metavar="SITES", help="Sites file, YAML or JSON.")]
JsonLines = Annotated[bool, typer.Option("--json", help="Print one JSON object a line, in base units.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("--broker", metavar="SITE=HOST:PORT", help="Use a broker of yours at this site; may be repeated."),
]


def inspect(
    project: ProjectPath,
    sites: Annotated[
        str | None,
        typer.Option(
            "--sites", metavar="SITES", help="Check 'at' and 'each' against this sites file.", show_default=False
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the graph here as a pipeline file, for 'headwater place'."),
    ] = None,
    draw: Annotated[str | None, typer.Option(metavar="FILE", help="Draw the graph here: .svg or .png.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Say what a project holds: operators, streams, schemas, lanes and why.

    Reads a Spark Declarative Pipelines project as it is, with headwater.yml
    beside it if there is one. Runs none of it: functions of flows are called
    to learn their plans. What cannot run across sites is named with file and
    line and what to write instead (exit code 2).

    [bold]Example[/bold]

    headwater inspect examples/readings
    """
    from headwater.serve import arguments, disk
    from headwater.serve.inspect import inspect as work
    from headwater.serve.output import Output
    from headwater.serve.reading import cache_folder, fetched_jars, lanes_of

    if out is not None:
        disk.check_writable(out)
    if draw is not None:
        arguments.check_picture(draw)
    jars = [str(one) for one in fetched_jars().spark]
    code = work(project, sites, out, draw, Output(json), jars=jars, cache=str(cache_folder()), chosen_lanes=lanes_of)
    raise typer.Exit(code)


def run(
    project: ProjectPath,
    sites: SitesOption,
    placement: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Which site runs each operator; without it, one is searched for."),
    ] = None,
    method: Annotated[str, typer.Option(help="How to search; 'headwater methods' lists the names.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same placement.")] = 0,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="TIME", help="End after this time, such as 60s; else on Ctrl-C.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep checkpoints, tables and brokers' data here; the next run with it goes on where this one ends.",
        ),
    ] = None,
    broker: Brokers = None,
    profile: Annotated[
        str | None, typer.Option(metavar="FILE", help="What 'headwater profile' measured, instead of what is declared.")
    ] = None,
    draw: Annotated[
        str | None, typer.Option(metavar="FILE", help="At the end, draw rates and latencies here: .svg or .png.")
    ] = None,
    emulate: Annotated[
        bool,
        typer.Option("--emulate", help="Links and machines as slow as the sites file says; without root only links."),
    ] = False,
    json: JsonLines = False,
) -> None:
    """Run a project cut across sites, all of them on this machine.

    Places the operators, cuts the pipeline into fragments joined by topics,
    starts a broker and a runner for each site, and shows every second how
    the fragments are: lane, records in and out, lag, latency, memory. Feeds
    nothing by itself: the sources are the project's. Ends on Ctrl-C and
    leaves nothing running. Whatever dies meanwhile is started again, and no
    record is lost or doubled.

    [bold]Example[/bold]

    headwater run examples/readings --sites examples/readings/sites.yaml --state /tmp/readings

    headwater feed examples/readings --state /tmp/readings --rate 50/s --for 30s    (in another terminal)
    """
    from headwater.serve import arguments
    from headwater.serve.kernels import load_core
    from headwater.serve.live import Screen

    search = arguments.search(method, seed, None)
    seconds = None if duration is None else arguments.quantity("--for", duration, "time")
    brokers = arguments.addresses("--broker", broker or [])
    if draw is not None:
        arguments.check_picture(draw)
    runs = load_core("headwater.serve.run")
    options = runs.Options(project, sites, placement, search, seconds, state, brokers, draw, profile, emulate)
    raise typer.Exit(runs.run(options, Screen(json)))


def profile(
    project: ProjectPath,
    sample: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Records: a generator, .jsonl or .parquet; OPERATOR=FILE for one source. May be repeated.",
        ),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", min=1, help="Listen to the sources themselves for S seconds.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", min=1, max=50, help="Measure each operator so often.")] = 3,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Where the profile goes.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Measure what each operator of a project costs, on real records.

    Runs every operator alone and measures processor time per record, how
    rates and sizes change, and state; repeats it and tells the spread. The
    profile that it writes takes the place of what was declared:
    headwater run PROJECT --profile FILE.

    [bold]Example[/bold]

    headwater profile examples/readings --sample examples/readings
    """
    from headwater.serve.output import Output
    from headwater.serve.profile import profile as work
    from headwater.serve.profiling import Wanted

    raise typer.Exit(work(project, Wanted(tuple(sample or ()), seconds, repeat), out, Output(json)))


def feed(
    generator: Annotated[
        str, typer.Argument(metavar="GENERATOR", help="A records.py, or the folder of an example that has one.")
    ],
    state: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The --state of a 'headwater run' or 'headwater up' that is going on; without it, and without "
            "--broker, that of the control plane (HEADWATER_STATE).",
        ),
    ] = None,
    broker: Brokers = None,
    wait: Annotated[
        str | None, typer.Option(metavar="TIME", help="Wait so long for the run to be ready.", show_default=False)
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="SITE", help="Feed only this site; may be repeated.")
    ] = None,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Records into each site.")] = "10/s",
    duration: Annotated[str | None, typer.Option("--for", metavar="TIME", help="End after this time.")] = None,
    count: Annotated[int | None, typer.Option(metavar="N", min=1, help="End after N records into each site.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same records.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An argument of the generator's own; may be repeated."),
    ] = None,
    start: Annotated[int, typer.Option(metavar="N", min=0, help="Begin with this record: go on after a feed.")] = 0,
    close: Annotated[bool, typer.Option("--close", help="At the end, feed what closes all windows.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object at the end.")] = False,
) -> None:
    """Feed made records into the sites' brokers, at a steady rate.

    A generator is a Python file with a function 'records(site, seed, start)'
    that gives (topic, key, value) without end. Without --site, the sites of
    the pipeline's sources are fed.

    [bold]Example[/bold]

    headwater feed examples/readings --state /tmp/readings --rate 50/s --for 30s
    """
    from headwater.serve import arguments
    from headwater.serve.control_options import state_folder
    from headwater.serve.feed import feed as work
    from headwater.serve.feed import running_brokers
    from headwater.serve.output import Output

    rate_rps = arguments.quantity("--rate", rate, "rate")
    seconds = None if duration is None else arguments.quantity("--for", duration, "time")
    named = arguments.addresses("--broker", broker or [])
    wait_s = 0.0 if wait is None else arguments.quantity("--wait", wait, "time")
    own = arguments.settings("--set", settings or [])
    found = state if state is not None or named else str(state_folder(None))
    brokers = running_brokers(found, named, site or [], wait_s)
    raise typer.Exit(work(generator, brokers, rate_rps, seconds, count, seed, close, Output(json), own, start))


def add_commands(app: typer.Typer) -> None:
    """Take the commands into the command line."""
    app.command()(inspect)
    app.command()(run)
    app.command()(profile)
    app.command()(feed)

"""What can be asked about packing? Declares `headwater pack`; the work is done by `serve.packing`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_commands", "pack"]

WorkloadFile = Annotated[
    str, typer.Argument(metavar="WORKLOAD", help="Workload file, YAML or JSON; '-' for standard input.")
]


def pack(
    workload: WorkloadFile,
    method: Annotated[
        str,
        typer.Option("--method", help="auto, rstorm, ga, bestfit, anneal or exact; 'headwater methods' tells more."),
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same answer.")] = 0,
    seconds: Annotated[
        float | None, typer.Option(metavar="S", help="Stop searching after S seconds of wall time.", show_default=False)
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the assignment here: JSON for .json, else YAML.", show_default=False),
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the load of each machine here: .svg or .png.", show_default=False),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="Pack with every method and show them side by side.")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="With --compare: only these methods, commas between.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")] = False,
) -> None:
    """Find how few machines hold loads that rise and fall.

    Operators whose peaks come at different times can share a machine that
    could not hold both peaks at once. Finds which machine runs each operator,
    with the fewest machines (or the least cost, where machines or overload
    have prices) and a proven lower bound: nothing that is allowed needs less.
    When the machines are not enough, says how many would be (exit code 3).

    [bold]Example[/bold]

    headwater pack examples/packing/twelve.yaml

    headwater pack examples/packing/twelve.yaml --compare
    """
    from headwater.serve import arguments, disk
    from headwater.serve.kernels import load_core
    from headwater.serve.load import load_workload
    from headwater.serve.output import Output

    search = arguments.search(method, seed, seconds)
    names = arguments.method_names(methods)
    arguments.check_compared(compare, methods, out, draw)
    if out is not None:
        disk.check_writable(out)
    if draw is not None:
        arguments.check_picture(draw)
    loaded = load_workload(workload)
    packing = load_core("headwater.serve.packing")
    if compare:
        raise typer.Exit(packing.compare(loaded, names, search, Output(json)))
    raise typer.Exit(packing.pack(loaded, search, out, draw, Output(json)))


def add_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(pack)

"""What can be asked of the simulator on the command line?"""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["add_commands", "simulate"]


def simulate(
    scenario: Annotated[
        str, typer.Argument(metavar="SCENARIO", help="Scenario file, YAML or JSON; '-' for standard input.")
    ],
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="In the place of the scenario's own seed.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End earlier, such as '600 s'.", show_default=False)
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Run once for each of these methods of scheduling.", show_default=False),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write JSON, CSV and a picture into this folder.", show_default=False),
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="In real time, with a table that is renewed.")] = False,
    speed: Annotated[float, typer.Option(metavar="X", help="Simulated seconds in a second, with --online.")] = 1.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object in base units on standard output.")
    ] = False,
) -> None:
    """Simulate load that rises and falls: who waits, how long, and at what cost?

    A scenario names machines or sites, operators whose load rises and falls,
    and what happens when: machines die, operators come, a method decides
    anew who runs where. Shows utilisation and overload of machines, and
    throughput, queues and latency of operators. The same seed gives the same
    answer. docs/simulate.md says what a scenario file may hold.

    [bold]Example[/bold]

    headwater simulate examples/simulate/paper.yaml --until '600 s'

    headwater simulate examples/simulate/day.yaml --compare bestfit,balance,random
    """
    from headwater.serve import arguments
    from headwater.serve.kernels import load_core
    from headwater.serve.output import Output

    asked = arguments.simulation(seed, until, arguments.method_names(compare), out, speed if online else None)
    raise typer.Exit(load_core("headwater.serve.simulate").simulate_file(scenario, asked, Output(json)))


def add_commands(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(simulate)

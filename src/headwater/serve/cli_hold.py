"""What can be asked about latency goals?

The commands under `headwater control`. Declared as those in `serve.cli`, which takes them in; imports wait until a
command needs them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.serve import cli_plane

__all__ = ["app", "control", "policies", "replay", "set_class", "set_policy", "status"]

app = typer.Typer(no_args_is_help=True, invoke_without_command=True, rich_markup_mode="rich")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object in base units on standard output.")]
Controller = cli_plane.Controller
State = cli_plane.State
EVERY = "1s"


@app.callback()
def control(
    context: typer.Context,
    simulate: Annotated[
        str | None,
        typer.Option(
            metavar="SCENARIO", help="Scenario file, YAML or JSON; '-' for standard input.", show_default=False
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How machines are shared; 'headwater control policies' lists all.",
            show_default="predictive",
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="A,B,C", help="Run once for each of these policies, or for 'all'.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**32 - 1, help="In the place of the scenario's own seed.", show_default=False),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="End earlier, such as '30 s'.", show_default=False)
    ] = None,
    every: Annotated[str, typer.Option(metavar="TIME", help="Simulated time between two decisions.")] = EVERY,
    out: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Write JSON, CSV and a picture into this folder.", show_default=False),
    ] = None,
    record: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write every decision and what it was made from.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Hold latency goals: who gets how much of a machine, every second?

    With --simulate, a scenario is run with one controller for each machine.
    Its operators have a 'class' (gold, silver, bronze) and may have a 'p99'
    of their own. Shows by class and by application how late records were,
    how many were later than their goal, in the whole and in the worst 10 s,
    what was used of the machines, and which goals gave way when.
    docs/latency.md says how it decides.

    [bold]Example[/bold]

    headwater control --simulate examples/control/burst.yaml

    headwater control --simulate examples/control/burst.yaml --compare all

    headwater control --simulate examples/control/burst.yaml --record decisions.jsonl

    headwater control replay decisions.jsonl
    """
    from headwater.serve import arguments

    given = {
        "--simulate": simulate is not None, "--policy": policy is not None, "--compare": compare is not None,
        "--seed": seed is not None, "--until": until is not None, "--every": every != EVERY, "--out": out is not None,
        "--record": record is not None, "--json": json,
    }  # fmt: skip
    arguments.check_simulated(given, context.invoked_subcommand)
    if simulate is None:
        return
    from headwater.serve import disk
    from headwater.serve.kernels import load_core
    from headwater.serve.output import Output

    asked = arguments.holding(policy, compare, seed, until, every, out, record)
    if record is not None:
        arguments.check_record(record, simulate)
        disk.check_writable(record)
    raise typer.Exit(load_core("headwater.serve.hold").simulate_file(simulate, asked, Output(json)))


@app.command()
def replay(
    record: Annotated[
        str, typer.Argument(metavar="RECORD", help="A record of decisions, JSON lines; '-' for standard input.")
    ],
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show what another policy would have decided.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Make every decision of a record again: are they the same?

    A record holds what was measured and what was decided. Without --policy,
    each decision is made again from what was measured; exit code 3 when one
    differs. With --policy, another policy decides from the same
    measurements: what it would have given to whom. What would have become
    of the records then, only --simulate can tell.

    [bold]Example[/bold]

    headwater control --simulate examples/control/burst.yaml --record decisions.jsonl

    headwater control replay decisions.jsonl

    headwater control replay decisions.jsonl --policy priority
    """
    from headwater.serve.hold_replay import replay_file
    from headwater.serve.output import Output

    raise typer.Exit(replay_file(record, policy, Output(json)))


@app.command()
def policies(json: Json = False) -> None:
    """List the policies, and what each does.

    [bold]Example[/bold]

    headwater control policies
    """
    from headwater.serve.hold_replay import list_policies
    from headwater.serve.output import Output

    raise typer.Exit(list_policies(Output(json)))


@app.command()
def status(controller: Controller = None, state: State = None, json: Json = False) -> None:
    """Show what running sites hold: goals, shares, limits, and why.

    One row for each pipeline or composition at a site: its class and goal;
    the latency that 99 of 100 records stay below now ('p99', red when later
    than the goal) and are expected to ('expected'); the cores that its goal
    asks for, its share of them and the limit that is set ('all': none); and
    why. A goal that cannot be held is named, with what is missing: let an
    operator run elsewhere ('headwater move'), or hold it to another class.

    [bold]Example[/bold]

    headwater control set-class alerts gold

    headwater control status

    headwater control status --json
    """
    from headwater.serve.client import Client, find
    from headwater.serve.goals import status as work
    from headwater.serve.output import Output

    with Client(find(controller, state)) as client:
        raise typer.Exit(work(client, Output(json)))


@app.command("set-class")
def set_class(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A composition or pipeline.", show_default=False)],
    quality: Annotated[
        str, typer.Argument(metavar="CLASS", help="gold, silver or bronze; 'none': as its project says.")
    ],
    p99: Annotated[
        str | None,
        typer.Option(
            "--p99", metavar="TIME", help="A goal of its own, such as '200 ms'; at least 1 ms.", show_default=False
        ),
    ] = None,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Hold a composition or pipeline to a class, from the next second on.

    Of 100 records, 99 are held within 300 ms (gold), 500 ms (silver) or
    800 ms (bronze), or within --p99; where not all goals can be held, the
    lower classes give way first. Nothing restarts. Sites keep it, and hold
    it also when the controller is gone. It goes when NAME is deleted.

    It comes before what a project says by 'goals: {class: gold, p99: 300 ms}'
    in its headwater.yml; 'none' goes back to that. Where nobody has a goal,
    nothing is limited. 'headwater status' lists what there is.

    [bold]Example[/bold]

    headwater control set-class alerts gold

    headwater control set-class reports bronze --p99 '5 s'

    headwater control set-class alerts none
    """
    from headwater.serve import arguments
    from headwater.serve.client import Client, find
    from headwater.serve.goals import check_class
    from headwater.serve.goals import set_class as work
    from headwater.serve.output import Output

    p99_s = None if p99 is None else arguments.quantity("--p99", p99, "time")
    check_class(name, quality, p99_s)
    with Client(find(controller, state)) as client:
        raise typer.Exit(work(name, quality, p99_s, client, Output(json)))


@app.command("set-policy")
def set_policy(
    policy: Annotated[
        str, typer.Argument(metavar="POLICY", help="Its name; 'default': as each agent was told by --control.")
    ],
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Choose how all sites hold their goals, from the next second on.

    'predictive' is what agents do by themselves; 'equal' limits nobody.
    'headwater control policies' lists all and says what each does. Nothing
    restarts, and sites keep it also when the controller is gone.

    [bold]Example[/bold]

    headwater control policies

    headwater control set-policy weighted

    headwater control set-policy default
    """
    from headwater.serve import arguments
    from headwater.serve.client import Client, find
    from headwater.serve.goals import DEFAULT
    from headwater.serve.goals import set_policy as work
    from headwater.serve.output import Output

    if policy != DEFAULT:
        arguments.check_policy("POLICY", policy)
    with Client(find(controller, state)) as client:
        raise typer.Exit(work(policy, client, Output(json)))

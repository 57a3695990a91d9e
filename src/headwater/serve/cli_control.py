"""What can be asked of a controller?

The commands that change and watch what runs: `plan`, `apply`, `status`, `jobs`, `logs`, `move`, `stop`, `start`,
`delete`, `history`. All of them are clients of the REST API. Declared as those in `serve.cli`, which takes them
in together with those of `serve.cli_plane`; imports wait until a command needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.serve import cli_plane

if TYPE_CHECKING:
    from headwater.serve.changing import Request
    from headwater.serve.client import Client
    from headwater.serve.submission import Asked, Submission

__all__ = ["add_commands", "apply", "delete", "history", "jobs", "logs", "move", "plan", "start", "status", "stop"]

PANEL = "What runs on the sites"
What = Annotated[
    str,
    typer.Argument(
        metavar="WHAT",
        help="A composition (YAML with 'jobs:'; '-' for standard input), or a project: a folder with "
        "spark-pipeline.yml, that file, or a .py file.",
        show_default=False,
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option("--name", help="What it is called; else the file's or the pipeline's name.", show_default=False),
]
SitesOption = Annotated[
    str | None, typer.Option("--sites", metavar="SITES", help="Of a project: its sites file.", show_default=False)
]
PlacementOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Of a project: which site runs each operator; else searched for."),
]
ProfileOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Of a project: what 'headwater profile' measured.")
]
MethodOption = Annotated[str, typer.Option("--method", help="How to search; 'headwater methods' lists the names.")]
SeedOption = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed gives the same placement.")]
Controller = cli_plane.Controller
State = cli_plane.State
Json = cli_plane.Json
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Wait = Annotated[str, typer.Option("--wait", metavar="TIME", help="Watch at most so long until it is done.")]
Force = Annotated[
    bool,
    typer.Option("--force", help="Let jobs leave sites that do not answer; what those hold of them is given up."),
]


def _client(controller: str | None, state: str | None) -> Client:
    from headwater.serve.client import Client, find

    return Client(find(controller, state))


def plan(
    what: What,
    name: NameOption = None,
    sites: SitesOption = None,
    placement: PlacementOption = None,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    profile: ProfileOption = None,
    force: Force = False,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Show what 'apply' would change, and change nothing.

    Every job comes in one of six buckets: + start, - stop, → move (to
    another site, state goes along), ~ rewire (other topics), * update (other
    code), = keep (same process, same query). Each with the reason and the
    pause that its records will see.

    [bold]Example[/bold]

    headwater plan town.yaml

    headwater plan examples/readings --sites examples/readings/sites.yaml
    """
    from headwater.serve.changing import plan as work
    from headwater.serve.output import Output
    from headwater.serve.submission import Asked, in_own_words

    asked = Asked(what, name, sites, placement, method, seed, profile)
    with _client(controller, state) as client:
        request, submission = _request(asked, force, client)
        words = [f"--{key} {value}" for key, value in (("sites", sites), ("name", name)) if value is not None]
        hint = " ".join(["do it with: headwater apply", what, *words])
        with in_own_words(submission):
            raise typer.Exit(work(request, client, Output(json), hint))


def apply(
    what: What,
    name: NameOption = None,
    sites: SitesOption = None,
    placement: PlacementOption = None,
    method: MethodOption = "auto",
    seed: SeedOption = 0,
    profile: ProfileOption = None,
    yes: Yes = False,
    wait: Wait = "5 min",
    force: Force = False,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Bring what runs to what a file says; touch only what differs.

    Shows the plan, asks, does it, and watches until every job runs. Nothing
    is lost and nothing comes twice, whatever dies meanwhile; a plan that was
    overtaken by another change is refused (exit code 3). Code is uploaded
    once and known by its hash. Exit code 4 when it is not done in time: the
    controller then goes on trying.

    [bold]Example[/bold]

    headwater apply town.yaml

    headwater apply examples/readings --sites examples/readings/sites.yaml --yes
    """
    from headwater.serve import arguments
    from headwater.serve.changing import Consent
    from headwater.serve.changing import apply as work
    from headwater.serve.output import Output
    from headwater.serve.submission import Asked, in_own_words

    output = Output(json)
    consent = Consent(yes, arguments.quantity("--wait", wait, "time"))
    consent.check(output)
    asked = Asked(what, name, sites, placement, method, seed, profile)
    with _client(controller, state) as client:
        request, submission = _request(asked, force, client)
        with in_own_words(submission):
            raise typer.Exit(work(request, client, output, consent))


def _request(asked: Asked, force: bool, client: Client) -> tuple[Request, Submission]:
    """Return what to ask for, once the controller has the code."""
    from headwater.serve.changing import Request
    from headwater.serve.submission import read_submission, upload

    found = read_submission(asked, client)
    upload(found.bundles, client)
    title = f"{found.kind} '{found.name}'"
    return Request(title, "PUT", found.path, found.content, force, found.name), found


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again every second, until Ctrl-C.")] = False,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Say how everything is: sites, and the jobs on them.

    Of each site whether it answers, its broker and memory; of each job its
    state and what is known of rates, lag and latency. A site that is silent
    may still run: its jobs need no controller.

    [bold]Example[/bold]

    headwater status --watch
    """
    from headwater.serve.output import Output
    from headwater.serve.watching import status as work

    with _client(controller, state) as client:
        raise typer.Exit(work(client, Output(json), watch))


def jobs(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A job, or a composition or pipeline for all of its jobs.")
    ] = None,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """List the jobs, or tell all of one.

    [bold]Example[/bold]

    headwater jobs

    headwater jobs readings.alerts
    """
    from headwater.serve.output import Output
    from headwater.serve.watching import jobs as work

    with _client(controller, state) as client:
        raise typer.Exit(work(name, client, Output(json)))


def logs(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A job.", show_default=False)],
    lines: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=1, max=10_000, help="So many.")] = 200,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show what comes, until Ctrl-C.")] = False,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Show the end of a job's log, as its site has it.

    Jobs of one composition share a runner on each site, and its log.

    [bold]Example[/bold]

    headwater logs readings.alerts --lines 50 --follow
    """
    from headwater.serve.output import Output
    from headwater.serve.watching import logs as work

    with _client(controller, state) as client:
        raise typer.Exit(work(name, lines, follow, client, Output(json)))


def move(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A job, PIPELINE/OPERATOR, or an operator that one pipeline has.", show_default=False
        ),
    ],
    site: Annotated[str, typer.Argument(metavar="SITE", help="Where it is to run.", show_default=False)],
    force: Force = False,
    yes: Yes = False,
    wait: Wait = "5 min",
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Let another site run a job or an operator; its state goes along.

    The new place is made ready, the job stops, its checkpoint is copied, it
    goes on where it ended, and the old place is cleared: no record is lost,
    none comes twice. Moving an operator may cut its pipeline otherwise, so
    that other jobs change too; the plan shows which.

    [bold]Example[/bold]

    headwater move readings/hot dc
    """
    from headwater.serve import arguments
    from headwater.serve.changing import Consent, Request
    from headwater.serve.changing import apply as work
    from headwater.serve.naming import movable
    from headwater.serve.output import Output

    output = Output(json)
    consent = Consent(yes, arguments.quantity("--wait", wait, "time"))
    consent.check(output)
    with _client(controller, state) as client:
        found = movable(name, site, force, client)
        request = Request(found.title, "POST", found.path, found.content, of=found.of)
        raise typer.Exit(work(request, client, output, consent))


def stop(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A job, or a composition or pipeline for all of it.", show_default=False),
    ],
    wait: Wait = "1 min",
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Stop a job where it is; it keeps its place and its checkpoint.

    Its records wait in their topics. 'headwater start' lets it go on where
    it ended.

    [bold]Example[/bold]

    headwater stop readings.alerts
    """
    raise typer.Exit(_run_or_not(name, "stop", wait, controller, state, json))


def start(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A job, or a composition or pipeline for all of it.", show_default=False),
    ],
    wait: Wait = "1 min",
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Let a stopped job go on where it ended.

    [bold]Example[/bold]

    headwater start readings.alerts
    """
    raise typer.Exit(_run_or_not(name, "start", wait, controller, state, json))


def _run_or_not(name: str, act: str, wait: str, controller: str | None, state: str | None, json: bool) -> int:
    from headwater.serve import arguments
    from headwater.serve.changing import Request, apply_at_once
    from headwater.serve.naming import runnable
    from headwater.serve.output import Output

    wait_s = arguments.quantity("--wait", wait, "time")
    with _client(controller, state) as client:
        path, names = runnable(name, client)
        request = Request(f"{act} '{name}'", "POST", f"{path}/{act}", of=name)
        return apply_at_once(request, names, client, Output(json), wait_s)


def delete(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A job, a composition or a pipeline.", show_default=False)
    ],
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="job, composition or pipeline, if several have the name.")
    ] = None,
    yes: Yes = False,
    wait: Wait = "1 min",
    force: Force = False,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Remove a job, a composition or a pipeline, with its checkpoints.

    Says which jobs go, and asks. Topics of yours stay; channels between
    jobs go.

    [bold]Example[/bold]

    headwater delete town
    """
    from headwater.serve import arguments
    from headwater.serve.changing import Consent, Request
    from headwater.serve.changing import apply as work
    from headwater.serve.naming import check_kind, deletable
    from headwater.serve.output import Output

    output = Output(json)
    consent = Consent(yes, arguments.quantity("--wait", wait, "time"))
    consent.check(output)
    check_kind(kind)
    with _client(controller, state) as client:
        of, path = deletable(name, kind, client)
        request = Request(f"delete {of} '{name}'", "DELETE", path, None, force, name)
        raise typer.Exit(work(request, client, output, consent))


def history(
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="So many.")] = 50,
    controller: Controller = None,
    state: State = None,
    json: Json = False,
) -> None:
    """Tell who changed what, when, and what came of it; the latest first.

    [bold]Example[/bold]

    headwater history --limit 10
    """
    from headwater.serve.output import Output
    from headwater.serve.watching import history as work

    with _client(controller, state) as client:
        raise typer.Exit(work(limit, client, Output(json)))


def add_commands(app: typer.Typer) -> None:
    """Take the commands into the command line."""
    for command in (plan, apply, status, jobs, logs, move, stop, start, delete, history):
        app.command(rich_help_panel=PANEL)(command)
    cli_plane.add_commands(app)

"""Which experiments can be repeated?

The commands under `headwater bench`. Declared as those in `serve.cli`, which takes them in; imports wait until a
command needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from headwater.serve.bench import Options

__all__ = ["app", "cut", "fire", "offload", "traffic"]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Repeat the papers' experiments on a testbed.

Each brings up a wide-area network of unequal machines on this one, runs
the example under each placement in several rounds, and writes a report
with pictures. Without root, links are emulated and machines are not.""",
)
Examples = Annotated[str, typer.Option(metavar="DIR", help="Where the examples are.")]
Scale = Annotated[
    float, typer.Option(metavar="X", help="Of the paper's rates: as much as this machine carries, 0.05 for each core.")
]
Repeat = Annotated[int, typer.Option(metavar="N", help="Rounds; from 2 on there are confidence intervals.")]
Watched = Annotated[str, typer.Option("--for", metavar="TIME", help="How long each trial is watched.")]
Warm = Annotated[str, typer.Option("--warm", metavar="TIME", help="How long it is fed before that.")]
Seed = Annotated[int, typer.Option(min=0, max=2**31, help="What all chance comes from.")]
Out = Annotated[str, typer.Option(metavar="DIR", help="Where result.json, report.md and pictures go.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command()
def fire(
    scale: Scale = 0.1,
    repeat: Repeat = 3,
    watched: Watched = "60s",
    warm: Warm = "20s",
    seed: Seed = 0,
    out: Out = "out/bench-fire",
    examples: Examples = "examples",
    json: Json = False,
) -> None:
    """Place fire detection by five methods and measure alerts: paper 001.

    On the paper's flat topology, a data centre and two edge clouds with 80
    ms and 100 Mbit/s between them. Shows latencies of temperatures and
    alerts as distributions, the predicted response time beside the
    measured, what the thin links carried, and what was lost or doubled:
    nothing.

    [bold]Example[/bold]

    headwater bench fire --scale 0.1 --repeat 3
    """
    _run("fire", _options(scale, repeat, watched, warm, seed, out, examples), json)


@app.command()
def traffic(
    scale: Scale = 0.1,
    repeat: Repeat = 3,
    watched: Watched = "20s",
    warm: Warm = "10s",
    seed: Seed = 0,
    out: Out = "out/bench-traffic",
    examples: Examples = "examples",
    json: Json = False,
) -> None:
    """Make statistics where data is born or in the cloud: paper 002.

    First one edge at the paper's rates, up to 1000 records a second, with
    its statistics made there or in the cloud; then three edges at --scale
    of those rates, with all jobs spread out (fog) or all in the cloud.
    Shows how old a record is when it is counted, and the paper's
    differential output rate D.

    [bold]Example[/bold]

    headwater bench traffic --repeat 3
    """
    _run("traffic", _options(scale, repeat, watched, warm, seed, out, examples), json)


@app.command()
def offload(
    scale: Scale = 0.1,
    repeat: Repeat = 3,
    watched: Watched = "60s",
    warm: Warm = "20s",
    seed: Seed = 0,
    out: Out = "out/bench-offload",
    examples: Examples = "examples",
    json: Json = False,
) -> None:
    """Move light operators to a small box and measure what it saves.

    Fire detection over a thin link: everything but the sources in the data
    centre, against operators where the search puts them. Shows the bytes
    on the thin link, the age of alerts and how busy each site is.

    [bold]Example[/bold]

    headwater bench offload --repeat 1 --for 30s
    """
    _run("offload", _options(scale, repeat, watched, warm, seed, out, examples), json)


@app.command()
def cut(
    scale: Scale = 0.1,
    repeat: Repeat = 1,
    watched: Watched = "60s",
    warm: Warm = "20s",
    length: Annotated[str, typer.Option("--cut", metavar="TIME", help="How long the link is cut.")] = "20s",
    seed: Seed = 0,
    out: Out = "out/bench-cut",
    examples: Examples = "examples",
    json: Json = False,
) -> None:
    """Cut the thin link while fire detection runs, and count records.

    Shows what was lost and doubled, and how long after the link is back
    records are as young as before.

    [bold]Example[/bold]

    headwater bench cut --cut 20s
    """
    from headwater.serve import arguments

    cut_s = arguments.quantity("--cut", length, "time")
    _run("cut", _options(scale, repeat, watched, warm, seed, out, examples), json, cut_s)


def _run(name: str, options: Options, as_json: bool, *more: float) -> NoReturn:
    from headwater.serve.kernels import load_core
    from headwater.serve.output import Output

    work = getattr(load_core(f"headwater.serve.bench_{name}"), f"bench_{name}")
    raise typer.Exit(work(options, *more, Output(as_json)))


def _options(scale: float, repeat: int, watched: str, warm: str, seed: int, out: str, examples: str) -> Options:
    from headwater.serve import arguments
    from headwater.serve.bench import Options
    from headwater.serve.trial import Times

    times = Times(arguments.quantity("--warm", warm, "time"), arguments.quantity("--for", watched, "time"))
    return Options(examples, scale, repeat, times, seed, out)

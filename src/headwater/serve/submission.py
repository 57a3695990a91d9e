"""What does the user want deployed?

Takes what was named on the command line, a composition (YAML with `jobs:`) or a project with a sites file, and
makes the request that says so to the controller, with the code that goes along. Files are read here, where the
user has them; what they mean together is for the controller.

    HW1332   neither a composition nor a project, or an option that belongs to the other of the two
    HW1333   code of a job that is not there
    HW1335   a name that a composition or a pipeline cannot have
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from headwater.errors import Mistake, SpecError
from headwater.model.report import Report, describe, quote
from headwater.model.text import parse
from headwater.model.tree import line_of
from headwater.plan.composition import name_trouble
from headwater.serve import disk
from headwater.serve.bundle import Bundle, bundle_folder, bundle_project, single_file
from headwater.serve.client import Client, in_address
from headwater.serve.load import shown_name
from headwater.serve.progress import Teller
from headwater.serve.told import named, rows

__all__ = ["Asked", "Submission", "in_own_words", "read_submission", "upload"]

HASH = "sha256:"
LONGEST_NAME = 100  # characters of an upload's name
CODE = frozenset({".py", ".zip"})
SPECS = frozenset({"spark-pipeline.yml", "spark-pipeline.yaml"})
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was named on the command line."""

    what: str
    name: str | None = None
    sites: str | None = None
    placement: str | None = None
    method: str = "auto"
    seed: int = 0
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """What the controller is asked to want."""

    kind: Literal["composition", "pipeline"]
    name: str
    file: str  # as messages name it
    content: bytes | dict[str, Any]
    bundles: tuple[Bundle, ...]

    @property
    def path(self) -> str:
        """Return where it is put."""
        return f"/{self.kind}s/{in_address(self.name, safe='')}"


def read_submission(asked: Asked, client: Client) -> Submission:
    """Return the request.

    Raises:
        SpecError: every mistake in what was named.
    """
    text = None if _is_project(asked.what) else disk.read(asked.what)
    if text is not None:
        shown = shown_name(asked.what)
        report = Report(shown)
        root = parse(text, report, with_lines=True).root
        if report:
            raise report.error()
        if isinstance(root, dict) and "jobs" in root:
            return _composition(asked, text, lambda: named(client.get("/uploads"), "uploads"))
        if not isinstance(root, dict) or "libraries" not in root:
            keys = f"the keys {', '.join(map(quote, list(root)[:6]))}" if isinstance(root, dict) else describe(root)
            hint = (
                " It looks like a pipeline file, which has no code; 'headwater place' takes it."
                if isinstance(root, dict) and "operators" in root
                else ""
            )
            text_ = f"this is neither a composition (with 'jobs:') nor a project; found {keys}.{hint}"
            raise SpecError(Mistake("HW1332", text_, shown, line_of(root)))
    return _pipeline(asked)


def upload(bundles: Collection[Bundle], client: Client) -> int:
    """Bring the code to the controller that it does not have yet; return how many pieces that were."""
    if not bundles:
        return 0
    known = {str(one.get("hash", "")).removeprefix(HASH) for one in rows(client.get("/uploads"), "uploads")}
    missing = {one.hash: one for one in bundles if one.hash not in known}
    with Teller("uploading") as teller:
        for number, one in enumerate(missing.values()):
            teller.say(one.name, number / len(missing))
            client.put(f"/uploads/{in_address(_file_name(one.name), safe='')}", one.content)
    return len(missing)


@contextmanager
def in_own_words(submission: Submission) -> Iterator[None]:
    """Let the controller's mistakes name the user's file: what it got has the same lines."""
    try:
        yield
    except SpecError as error:
        if submission.kind != "composition":
            raise
        raise SpecError(
            *(one if one.line is None else replace(one, file=submission.file) for one in error.mistakes)
        ) from None


def _is_project(what: str) -> bool:
    return os.path.isdir(what) or what.endswith(".py") or os.path.basename(what) in SPECS


def _composition(asked: Asked, text: bytes, uploads: Callable[[], list[str]]) -> Submission:
    shown = shown_name(asked.what)
    for option, value in (("--sites", asked.sites), ("--placement", asked.placement), ("--profile", asked.profile)):
        if value is not None:
            raise SpecError(
                Mistake("HW1332", f"a composition names its sites itself; {option} is for a project", shown)
            )
    is_piped = asked.what == disk.STANDARD_INPUT
    name = _checked_name(asked.name or ("" if is_piped else Path(asked.what).stem), asked, "the file's name")
    folder = Path.cwd() if is_piped else Path(asked.what).parent
    content, bundles = _with_code(text.decode("utf-8-sig"), folder, Report(shown), uploads)
    return Submission("composition", name, shown, content.encode(), bundles)


def _with_code(
    text: str, folder: Path, report: Report, uploads: Callable[[], list[str]]
) -> tuple[str, tuple[Bundle, ...]]:
    """Return a composition with the hash of each file of code in its place, line by line as it was."""
    found: dict[str, Bundle] = {}
    known: list[str] | None = None
    places: list[tuple[int, int, str]] = []
    for node in _paths(yaml.compose(text, _LOADER)):
        path, line = node.value, node.start_mark.line + 1
        if path.startswith(HASH) or not path:
            continue
        file = folder / path
        if path not in found:
            if not file.exists():
                known = uploads() if known is None else known
                if path not in known:
                    tip = report.tip(path, [*known, *_beside(file, folder)])
                    there = f"paths start at '{folder.resolve()}'"
                    report.add("HW1333", f"there is no file {quote(path)} for 'job_path'; {there}.{tip}", line)
                continue
            if file.is_file() and file.suffix.lower() not in CODE:
                report.add("HW1333", f"the code of a job is a .py, a .zip or a folder; found {quote(path)}.", line)
                continue
            found[path] = bundle_folder(str(file)) if file.is_dir() else single_file(str(file))
        places.append((node.start_mark.index, node.end_mark.index, found[path].hash))
    if report:
        raise report.error()
    for start, end, digest in sorted(places, reverse=True):
        tail = "\n" if text[start:end].endswith("\n") else ""
        text = f'{text[:start]}"{HASH}{digest}"{tail}{text[end:]}'
    return text, tuple(found.values())


def _paths(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """Yield what stands after every 'job_path', also behind anchors and merges, each place once."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                is_path = isinstance(key, yaml.ScalarNode) and key.value == "job_path"
                if is_path and isinstance(value, yaml.ScalarNode):
                    if id(value) not in seen:
                        seen.add(id(value))
                        yield value
                else:
                    waiting.append(value)


def _beside(file: Path, folder: Path) -> list[str]:
    """Return what could have been meant: code in the folder where a file was looked for."""
    try:
        there = [one for one in file.parent.iterdir() if one.suffix in CODE]
    except OSError:
        return []
    return [os.path.relpath(one, folder) for one in there]


def _pipeline(asked: Asked) -> Submission:
    if asked.sites is None:
        text = "a project is placed on sites: name the sites file with --sites"
        raise SpecError(Mistake("HW1332", text, asked.what))
    if asked.name is not None:
        _checked_name(asked.name, asked, "")
    from headwater.model.files import read_placement, read_sites  # noqa: PLC0415 - a composition needs none of these
    from headwater.model.keep import to_json  # noqa: PLC0415
    from headwater.serve.profile import with_profile  # noqa: PLC0415
    from headwater.serve.reading import fetched_jars, read  # noqa: PLC0415

    sites_text = disk.read(asked.sites)
    sites = read_sites(sites_text, shown_name(asked.sites))
    own = [one for one in (asked.sites, asked.placement, asked.profile) if one is not None]
    bundle = bundle_project(asked.what, own)
    project = with_profile(read(asked.what, fetched_jars()), asked.profile)
    placement = None
    if asked.placement is not None:
        from headwater.serve.kernels import load_core  # noqa: PLC0415

        whole = load_core("headwater.serve.prepare").expanded(project, sites)
        given = disk.read(asked.placement)
        placement = read_placement(given, shown_name(asked.placement), whole.pipeline, sites, project.pipeline.by_name)
    name = _checked_name(asked.name or project.name, asked, "the pipeline's name")
    content = {
        "project": to_json(project),
        "upload": bundle.hash,
        "sites": sites_text.decode("utf-8-sig"),
        "placement": placement,
        "seed": asked.seed,
        "method": asked.method,
    }
    return Submission("pipeline", name, asked.what, content, (bundle,))


def _checked_name(name: str, asked: Asked, whence: str) -> str:
    trouble = name_trouble(name)
    if trouble is None:
        return name
    told = f", which is {whence}" if asked.name is None and name else ""
    why = f"{quote(name, 60)}{told}, cannot be its name: {trouble}" if name else "standard input tells no name"
    raise SpecError(Mistake("HW1335", f"{why}. Give one with --name.", shown_name(asked.what)))


def _file_name(name: str) -> str:
    """Return a name that an upload may have: it is only for people, the hash counts."""
    safe = "".join(one if one.isascii() and (one.isalnum() or one in "._-") else "_" for one in name)
    return safe.lstrip("._-")[-LONGEST_NAME:].lstrip("._-") or "code"

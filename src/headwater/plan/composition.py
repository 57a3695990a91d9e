"""Which jobs does a user describe, and is all of it right?

Makes `Job`s of the text of a composition (YAML with a list `jobs`) or of the eight fields of a single job, and
names every mistake with its line. The fields and their names are those of the job API that jobs are submitted
through: a place (`spe_address`), two brokers, two topics, and the code. What sites, brokers and uploads there
are is the caller's to say (`Surroundings`). `job_form` goes the other way, and `composition_text` writes YAML.

    HW1530  a name that no job or composition can have
    HW1531  two jobs of one name
    HW1532  a place that is no site
    HW1533  a broker that is neither a site's nor an address
    HW1534  a topic that Kafka would refuse, or that is ours
    HW1535  code that was not uploaded
    HW1536  an entry that is no 'module:function'
    HW1537  jobs that feed themselves
    HW1538  no jobs at all, or an entry that is none
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from headwater.errors import SpecError
from headwater.model import fields
from headwater.model.fields import Body, Field, Reader, Spot, read_fields, read_file
from headwater.model.report import Report, describe, listed, quote
from headwater.model.text import parse
from headwater.model.tree import line_of
from headwater.plan.jobs import CHANNEL, JOB_NAME, LONERS, Job, Topic

__all__ = [
    "FORM",
    "Composed",
    "Surroundings",
    "composition_text",
    "feeds_itself",
    "job_form",
    "name_trouble",
    "read_composition",
    "read_job",
]

FORM = (
    "job_name", "spe_address", "source_broker", "sink_broker", "source_topic", "sink_topic", "entry_class", "job_path",
)  # fmt: skip
HASH = "sha256:"  # begins a job_path that names what was uploaded by its content
LONGEST = 400  # characters of any field; the longest that is right is a topic of 249

_ADDRESS = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://)?(\[[0-9A-Fa-f:.]+\]|[^/:\[\]@\s]+)(?::([0-9]{1,5}))?/?")
_HOST = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_KAFKAS_OWN = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"))
_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*")
_PLAIN = re.compile(r"[A-Za-z](?:[A-Za-z0-9:/._-]*[A-Za-z0-9])?")  # what YAML takes for text without quotes, but for:
_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
_DASHES = re.compile(
    rb"\A(?:\xef\xbb\xbf)?-{4,}[ \t]*(?=\r?\n)"
)  # a document's mark, as printed with one dash too many


@dataclass(frozen=True)
class Surroundings:
    """What a job may refer to."""

    sites: Collection[str]
    upload: Callable[[str], str | None]  # the hash of what was uploaded, by name or by hash; None: nothing was
    labels: Mapping[str, str] = field(default_factory=dict)  # sites, by the address that their agents go by
    brokers: Mapping[str, str] = field(default_factory=dict)  # sites, by the address 'host:port' of their brokers
    others: Mapping[str, Job] = field(default_factory=dict)  # jobs that there are besides


@dataclass(frozen=True)
class Composed:
    """What a composition says."""

    jobs: Mapping[str, Job]  # by name, in the order of the file
    lines: Mapping[str, int | None]  # where each of them begins


def read_composition(text: bytes, file: str, name: str, around: Surroundings) -> Composed:
    """Return the jobs of a composition.

    Args:
        text: YAML or JSON.
        file: What messages call it.
        name: Of the composition.
        around: What its jobs may refer to.

    Raises:
        SpecError: every mistake in it.
    """
    report = Report(file)
    trouble = name_trouble(name)
    if trouble is not None:
        raise report.stop("HW1530", f"a composition cannot be called {quote(name, 40)}: {trouble}.")
    tree = parse(_DASHES.sub(b"", text), report, with_lines=True)
    root = tree.root
    if not isinstance(root, dict):
        raise report.stop("HW1538", f"a composition is a mapping with 'jobs'; found {describe(root)}.", line_of(root))
    table = {"jobs": Field("jobs", fields.entries)}
    found = read_file(Spot(report, root, "the composition"), table, "jobs", "operators")
    given = [] if found is None else found["jobs"]
    if found is not None and not given:
        report.add("HW1538", "the composition has no jobs. Add one, or delete the composition.", line_of(root, "jobs"))
    jobs: dict[str, Job] = {}
    lines: dict[str, int | None] = {}
    for number, body in enumerate(given):
        line = line_of(given, number)
        if not isinstance(body, dict):
            report.add("HW1538", f"job {number + 1} must be a mapping; found {describe(body)}.", line)
            continue
        made = _job(report, body, f"job {number + 1}", name, around)
        if made is None:
            continue
        if made.name in lines:
            text_ = (
                f"job {quote(made.name)} stands here and on line {lines[made.name]}. Rename or remove one of the two."
            )
            report.add("HW1531", text_, line)
            continue
        jobs[made.name], lines[made.name] = made, line
    if not report:
        _report_cycle(report, jobs, around.others, lines)
    if report:
        raise report.error()
    return Composed(jobs, lines)


def read_job(form: Mapping[str, object], around: Surroundings, composition: str = LONERS) -> Job:
    """Return the job that the eight fields describe.

    Raises:
        SpecError: every mistake in them; without file and line.
    """
    report = Report("")
    job = _job(report, dict(form), "the job", composition, around)
    if job is not None and not report:
        _report_cycle(report, {job.name: job}, around.others, {})
    if job is None or report:
        raise SpecError(*(replace(one, file=None, line=None) for one in report.error().mistakes))
    return job


def job_form(job: Job) -> dict[str, str] | None:
    """Return the eight fields of a job; None for a fragment of a pipeline, which has no such form."""
    if job.part or len(job.sources) != 1 or job.sink is None:
        return None
    source, sink = job.sources[0], job.sink
    brokers = (_broker_form(source), _broker_form(sink))
    values = (job.name, job.site, *brokers, source.name, sink.name, job.entry, HASH + job.code)
    return dict(zip(FORM, values, strict=True))


def composition_text(jobs: Iterable[Job]) -> str:
    """Return the YAML of a composition; read again, it gives the same jobs."""
    lines = ["jobs:"]
    for job in jobs:
        form = job_form(job)
        assert form is not None, "a composition holds no fragments"
        lines += (f"{'- ' if key == 'job_name' else '  '}{key}: {_scalar(value)}" for key, value in form.items())
    return "\n".join(lines) + "\n"


def name_trouble(name: str) -> str | None:
    """Return why a job, composition or pipeline cannot have a name, or None.

    >>> name_trouble("city-1"), name_trouble("../etc")
    (None, "allowed are 1 to 120 letters, digits, '.', '_' and '-', and the first is a letter or digit")
    """
    if not JOB_NAME.fullmatch(name):
        return "allowed are 1 to 120 letters, digits, '.', '_' and '-', and the first is a letter or digit"
    if name == LONERS:
        return "this name stands for the jobs that belong to no composition"
    return None


def feeds_itself(jobs: Iterable[Job]) -> tuple[str, ...]:
    """Return jobs that write, one for the other, what the first of them reads; none: there is no such circle."""
    readers: dict[Topic, list[str]] = {}
    by_name = {job.name: job for job in jobs}
    for job in by_name.values():
        for topic in job.sources:
            readers.setdefault(topic, []).append(job.name)
    later = {name: readers.get(job.sink, []) if job.sink is not None else [] for name, job in by_name.items()}
    state: dict[str, int] = {}  # 1: on the way from the first job; 2: leads into no circle
    for first in by_name:
        way = [(first, iter(later[first]))] if first not in state else []
        state.setdefault(first, 1)
        while way:
            name, rest = way[-1]
            reader = next(rest, None)
            if reader is None:
                state[name] = 2
                way.pop()
            elif state.get(reader) == 1:
                names = [one for one, _ in way]
                return tuple(names[names.index(reader) :])
            elif reader not in state:
                state[reader] = 1
                way.append((reader, iter(later[reader])))
    return ()


def _job(report: Report, body: Body, what: str, composition: str, around: Surroundings) -> Job | None:
    """Return a job, or None after its mistakes are reported."""
    name = body.get("job_name")
    what = f"job {quote(name, 40)}" if isinstance(name, str) and name else what
    found = read_fields(Spot(report, body, what), _table(around))
    if len(found) != len(FORM):
        return None
    source = Topic(found["source_broker"], found["source_topic"])
    sink = Topic(found["sink_broker"], found["sink_topic"])
    return Job(found["name"], composition, found["site"], (source,), sink, found["code"], found["entry"])


def _table(around: Surroundings) -> dict[str, Field]:
    return {
        "job_name": Field("name", _name, "A"),
        "spe_address": Field("site", _site(around), "http://edge-1:8081/"),
        "source_broker": Field("source_broker", _broker(around), "tcp://edge-1:1883"),
        "sink_broker": Field("sink_broker", _broker(around), "tcp://edge-1:1883"),
        "source_topic": Field("source_topic", _topic, "T-1"),
        "sink_topic": Field("sink_topic", _topic, "T-2"),
        "entry_class": Field("entry", _entry, "module:function"),
        "job_path": Field("code", _code(around), "jobs.zip"),
    }


def _text(spot: Spot, key: str, code: str) -> str | None:
    """Return text; a whole number is taken as its digits."""
    value = spot.body[key]
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 128:
        return str(value)
    if isinstance(value, str) and 0 < len(value) <= LONGEST:
        return value
    found = f"text of {len(value)} characters" if isinstance(value, str) and value else describe(value)
    spot.add(code, key, f"must be text of 1 to {LONGEST} characters; found {found}.")
    return None


def _name(spot: Spot, key: str) -> str | None:
    name = _text(spot, key, "HW1530")
    trouble = None if name is None else name_trouble(name)
    if name is None or trouble is not None:
        if trouble is not None:
            spot.report.add("HW1530", f"{spot.what} cannot be called so: {trouble}.", line_of(spot.body, key))
        return None
    return name


def _site(around: Surroundings) -> Reader:
    labels = {_plain(label): site for label, site in around.labels.items()}

    def read(spot: Spot, key: str) -> str | None:
        text = _text(spot, key, "HW1532")
        if text is None:
            return None
        address = _ADDRESS.fullmatch(text)
        host = text if address is None else address[1]
        for name in (text, host):
            if name in around.sites:
                return name
        found = labels.get(_plain(text))
        if found is None:
            tip = spot.report.tip(host, around.sites)
            known = f" Known: {listed(sorted(around.sites))}." if around.sites else " No agent has come yet."
            spot.add("HW1532", key, f"names {quote(text, 60)}, which is no site with an agent.{tip or known}")
        return found

    return read


def _broker(around: Surroundings) -> Reader:
    def read(spot: Spot, key: str) -> str | None:
        text = _text(spot, key, "HW1533")
        if text is None:
            return None
        if text in around.sites:
            return text
        address = _ADDRESS.fullmatch(text)
        host, port = ("", None) if address is None else (address[1], address[2])
        if host in around.sites:
            return host
        if port is not None and 0 < int(port) < 65536 and _HOST.fullmatch(host):
            whole = f"{host}:{int(port)}"
            return around.brokers.get(whole, whole)
        tip = spot.report.tip(host, around.sites)
        spot.add(
            "HW1533",
            key,
            f"is {quote(text, 60)}; wanted is a site, such as tcp://edge-1, or a broker's address, such as "
            f"tcp://10.0.0.7:9092.{tip}",
        )
        return None

    return read


def _topic(spot: Spot, key: str) -> str | None:
    topic = _text(spot, key, "HW1534")
    if topic is None:
        return None
    because = None
    if not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        because = "Kafka allows 1 to 249 letters, digits, '.', '_' and '-'"
    elif topic.startswith(CHANNEL):
        because = f"names that begin with '{CHANNEL}' are Headwater's own"
    elif topic in _KAFKAS_OWN:
        because = "it is Kafka's own"
    if because is not None:
        spot.add("HW1534", key, f"cannot be the topic {quote(topic, 60)}: {because}. Choose another name.")
    return topic if because is None else None


def _entry(spot: Spot, key: str) -> str | None:
    entry = _text(spot, key, "HW1536")
    if entry is not None and not _ENTRY.fullmatch(entry):
        text = f"is {quote(entry, 60)}; wanted is 'module:function', a function from DataFrame to DataFrame."
        spot.add("HW1536", key, text)
        return None
    return entry


def _code(around: Surroundings) -> Reader:
    def read(spot: Spot, key: str) -> str | None:
        path = _text(spot, key, "HW1535")
        found = None if path is None else around.upload(path.removeprefix(HASH))
        if path is not None and found is None:
            text = f"is {quote(path, 90)}, and nothing was uploaded under this name or hash. Upload it first."
            spot.add("HW1535", key, text)
        return found

    return read


def _report_cycle(
    report: Report, jobs: Mapping[str, Job], others: Mapping[str, Job], lines: Mapping[str, int | None]
) -> None:
    circle = feeds_itself({**others, **jobs}.values())
    mine = [name for name in circle if name in jobs]
    if not mine:
        return
    what = "writes the topic that it reads" if len(circle) == 1 else "feed one another in a circle"
    report.add(
        "HW1537",
        f"{'job' if len(circle) == 1 else 'jobs'} {listed(circle)} {what}: its records would never end. "
        "Let one of them write another topic.",
        lines.get(mine[0]),
    )


def _plain(address: str) -> str:
    """Return an address without what may be left out."""
    return address.lower().rstrip("/").partition("://")[2] or address.lower().rstrip("/")


def _broker_form(topic: Topic) -> str:
    return topic.broker if ":" not in topic.broker else f"tcp://{topic.broker}"


def _scalar(value: str) -> str:
    is_plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
    return value if is_plain else json.dumps(value)

"""Does every engine and broker do what `ports` says? One suite, on the simulated world and on Spark and Kafka."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from headwater.bind import archive, jars
from headwater.bind.code import Code
from headwater.bind.engine import Ground, SparkEngine
from headwater.bind.kafka import KafkaBroker
from headwater.bind.site_broker import SiteBroker
from headwater.bind.topics import ensure_topics, tail
from headwater.plan.jobs import Job, Topic
from headwater.ports import Broker, Engine, Record
from headwater.sim.engine import SimEngine
from headwater.sim.world import World
from tests.control import CODE, Feed

PATIENCE_S = 120.0
HASH = hashlib.sha256(CODE.encode()).hexdigest()


class Stand(Protocol):
    """Two engines beside one broker, at the sites 'a' and 'b'; the broker is at 'a'."""

    engines: Mapping[str, Engine]
    broker: Broker

    def feed(self, topic: str, first: int, last: int) -> None: ...

    def rows(self, topic: str) -> list[int]: ...

    def kill(self, site: str) -> None: ...

    def pass_time(self) -> None: ...


class Simulated:
    """The simulated world."""

    def __init__(self) -> None:
        self._world = World()
        self._sim = {site: SimEngine(site, self._world) for site in ("a", "b")}
        self.engines: Mapping[str, Engine] = self._sim
        self.broker: Broker = self._world.broker("a")
        self._rng = Random(0)

    def feed(self, topic: str, first: int, last: int) -> None:
        self._world.feed(Topic("a", topic), [f"k#{number}" for number in range(first, last)])

    def rows(self, topic: str) -> list[int]:
        return [int(row.id.partition("#")[2]) for row in self._world.log(Topic("a", topic)).rows]

    def kill(self, site: str) -> None:
        self._sim[site].kill()

    def pass_time(self) -> None:
        for one in self._sim.values():
            one.advance(self._rng)


class Real:
    """Spark and Kafka."""

    def __init__(self, folder: Path) -> None:
        found = jars.ensure(lambda _: None)
        archives = archive.ensure(found, lambda _: None)
        flags = archive.flags(archives.get("kafka"))
        self._kafka = KafkaBroker(
            "a", folder / "broker", found, flags=flags, bootstrap=archives.get("bootstrap"), is_detached=True
        )
        self._site = SiteBroker(self._kafka)
        self._site.up()
        self.broker: Broker = self._site
        upload = folder / HASH
        upload.write_text(CODE, "utf-8")
        self._spark = {}
        for site in ("a", "b"):
            ground = Ground(
                site,
                folder / site,
                found,
                lambda: self._kafka.address,
                Code(folder / site / "code", lambda _: upload),
                tuple(archive.flags(archives.get("spark"))),
            )
            self._spark[site] = SparkEngine(ground)
        self.engines: Mapping[str, Engine] = self._spark

    def feed(self, topic: str, first: int, last: int) -> None:
        ensure_topics(self._kafka.address, [topic])
        feed = Feed(self._kafka.address, topic, 1e9, first, until=last)
        feed.join()

    def rows(self, topic: str) -> list[int]:
        ensure_topics(self._kafka.address, [topic])
        return [int(one.value() or b"") for one in tail(self._kafka.address, topic, 0, 30.0)]

    def kill(self, site: str) -> None:
        self._spark[site].kill()

    def pass_time(self) -> None:
        time.sleep(0.1)  # Kafka tells what it holds only when asked

    def end(self) -> None:
        for one in self._spark.values():
            one.end()
        self._site.end()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    found = Real(tmp_path_factory.mktemp("engine"))
    try:
        yield found
    finally:
        found.end()


@pytest.fixture(params=["simulated", pytest.param("real", marks=[pytest.mark.spark, pytest.mark.kafka])])
def stand(request: pytest.FixtureRequest) -> Stand:
    found: Stand = Simulated() if request.param == "simulated" else request.getfixturevalue("real")
    return found


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """A job of its own for each test."""
    name = request.node.name.split("[")[0].removeprefix("test_")[:60].replace("_", "-")
    job = Job(name, "suite", "a", (Topic("a", f"{name}.in"),), Topic("a", f"{name}.out"), HASH, "jobs:passing")
    return Record(job, 1, True)


def wired(record: Record, source: str | None = None, sink: str | None = None) -> Record:
    """Return a record of the same job with other topics."""
    job = record.job
    sources = job.sources if source is None else (Topic("a", source),)
    return replace(record, job=replace(job, sources=sources, sink=job.sink if sink is None else Topic("a", sink)))


def until(stand: Stand, is_so: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, what
        stand.pass_time()


def come(stand: Stand, topic: str, count: int) -> list[int]:
    """Return the rows of a topic when there are so many."""
    until(stand, lambda: len(stand.rows(topic)) >= count, f"{count} rows in '{topic}'")
    return stand.rows(topic)


def begun(stand: Stand, record: Record, count: int = 40) -> str:
    """Let a job run and write so many rows; return the topic that it reads."""
    taken = record.job.sources[0].name
    stand.feed(taken, 0, count)
    stand.engines["a"].ensure(record)
    assert record.job.sink is not None
    come(stand, record.job.sink.name, count)
    return taken


def test_a_job_that_is_ensured_twice_is_left_alone(stand: Stand, record: Record) -> None:
    begun(stand, record)
    before = stand.engines["a"].states()[record.job.name]
    stand.engines["a"].ensure(record)
    after = stand.engines["a"].states()[record.job.name]
    assert (after.state, after.query) == (before.state, before.query)
    assert after.state in {"starting", "running"}


def test_a_halted_job_takes_nothing_and_goes_on_where_it_was(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    assert stand.engines["a"].halt(record, False) == {}
    stand.feed(taken, 40, 80)
    for _ in range(5):
        stand.pass_time()
    assert stand.rows(f"{record.job.name}.out") == list(range(40))
    stand.engines["a"].ensure(record)
    assert come(stand, f"{record.job.name}.out", 80) == list(range(80))


def test_a_killed_engine_loses_and_doubles_nothing(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    stand.kill("a")
    stand.feed(taken, 40, 80)
    stand.engines["a"].ensure(record)
    assert come(stand, f"{record.job.name}.out", 80) == list(range(80))


def test_a_checkpoint_that_is_packed_goes_on_at_another_engine(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    stand.engines["a"].halt(record, False)
    stand.feed(taken, 40, 80)
    stand.engines["b"].unpack(record.job.name, stand.engines["a"].pack(record.job.name))
    there = replace(record, job=replace(record.job, site="b"), epoch=2, brokers=_brokers(stand))
    stand.engines["b"].ensure(there)
    assert come(stand, f"{record.job.name}.out", 80) == list(range(80))
    stand.engines["a"].remove(record.job.name)
    assert record.job.name not in stand.engines["a"].states()


def test_another_sink_gets_only_what_the_one_before_did_not(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    stand.engines["a"].halt(record, False)
    stand.feed(taken, 40, 80)
    later = wired(record, sink=f"{record.job.name}.later")
    assert record.job.sink is not None
    stand.engines["a"].ensure(replace(later, formerly=(record.job.sink,)))
    assert come(stand, f"{record.job.name}.later", 40) == list(range(40, 80))
    assert stand.rows(f"{record.job.name}.out") == list(range(40))


def test_a_drained_job_has_taken_all_and_may_read_another_topic(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    stand.engines["a"].halt(record, False)
    stand.feed(taken, 40, 80)
    assert set(stand.engines["a"].halt(record, True)) == {f"a/{taken}"}
    assert stand.rows(f"{record.job.name}.out") == list(range(80))
    other = f"{record.job.name}.other"
    stand.feed(other, 80, 120)
    stand.engines["a"].ensure(wired(record, source=other))
    assert come(stand, f"{record.job.name}.out", 120) == list(range(120))


def test_whoever_takes_over_a_source_begins_where_the_other_ended_and_only_once(stand: Stand, record: Record) -> None:
    taken = begun(stand, record)
    places = stand.engines["a"].halt(record, True)
    heir = replace(record, job=replace(record.job, name=f"{record.job.name}.heir"), seat=places)
    stand.feed(taken, 40, 60)
    stand.engines["a"].ensure(heir)
    assert come(stand, f"{record.job.name}.out", 60) == list(range(60))
    stand.engines["a"].halt(heir, False)
    stand.feed(taken, 60, 80)
    stand.engines["a"].ensure(heir)  # with the same seat, which it has taken
    assert come(stand, f"{record.job.name}.out", 80) == list(range(80))


def test_a_removed_job_begins_anew(stand: Stand, record: Record) -> None:
    begun(stand, record)
    stand.engines["a"].remove(record.job.name)
    assert record.job.name not in stand.engines["a"].states()
    again = wired(record, sink=f"{record.job.name}.again")
    stand.engines["a"].ensure(again)
    assert come(stand, f"{record.job.name}.again", 40) == list(range(40))


def test_a_broker_makes_topics_tells_their_ends_and_empties_them(stand: Stand, record: Record) -> None:
    topic = f"hw.{record.job.name}"
    stand.broker.ensure_topics([topic])
    assert stand.broker.ends([topic]) == {(topic, 0): 0}
    stand.feed(topic, 0, 7)
    assert stand.broker.ends([topic]) == {(topic, 0): 7}
    stand.broker.clear_topics([topic])
    stand.broker.clear_topics([topic])
    stand.broker.ensure_topics([topic])
    assert stand.broker.ends([topic]) == {(topic, 0): 0}


def _brokers(stand: Stand) -> dict[str, str]:
    address = getattr(stand.broker, "address", None)
    return {} if address is None else {"a": str(address)}

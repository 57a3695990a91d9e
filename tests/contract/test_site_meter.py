"""Are runners measured as they are: at a real broker, by the kernel's counts, whatever comes late or goes away?

What a runner says of its jobs is written by hand here: what is tested is what becomes of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headwater.bind import cgroup
from headwater.bind.kafka import KafkaBroker
from headwater.bind.limiter import Limiter
from headwater.bind.site_meter import SiteMeter, Work
from headwater.bind.spans import Spans
from headwater.bind.topics import client_settings, ensure_topics, remove_topics
from headwater.plan.jobs import Job, Topic
from headwater.ports import Running
from tests.contract.beds import until
from tests.contract.fetched import fetched
from tests.contract.slow import Relay

pytestmark = pytest.mark.kafka

SITE, NAME, READY_S = "hub", "city", 120.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    jars = fetched()
    found = KafkaBroker(SITE, tmp_path_factory.mktemp(SITE), jars)
    found.start()
    found.wait_ready(READY_S)
    yield found
    found.kill()


@dataclass
class Site:
    """A runner that does nothing, jobs of it, and what it is said to have taken."""

    address: str
    leader: int
    limiter: Limiter
    jobs: list[Job] = field(default_factory=list)
    states: dict[str, Running] = field(default_factory=dict)
    said_s: float | None = None
    now_s: float = field(default_factory=time.monotonic)

    def add(self, topic: str, state: str = "running") -> None:
        ensure_topics(self.address, [topic])
        self.jobs.append(Job(f"job-{topic}", NAME, SITE, (Topic(SITE, topic),), Topic(SITE, f"{topic}-out"), "", ""))
        self.states[f"job-{topic}"] = Running(state, f"query-{topic}", told={"taken": 0, "lag": 0})  # type: ignore[arg-type]

    def feed(self, topic: str, count: int) -> None:
        producer = Producer(client_settings(self.address))
        for number in range(count):
            producer.produce(topic, str(number), partition=0)
        assert producer.flush(30) == 0

    def say(self, topic: str, taken: int, lag: int = 0) -> None:
        """Let the runner say what it has taken, now."""
        name = f"job-{topic}"
        self.states = {**self.states, name: replace(self.states[name], told={"taken": taken, "lag": lag})}
        self.said_s = self.now_s

    def works(self) -> dict[str, Work]:
        return {NAME: Work(self.leader, tuple(self.jobs), self.said_s, self.states)}

    def meter(self, known: object = None) -> SiteMeter:
        """Return a meter whose clock stands still until it is told."""
        return SiteMeter(
            SITE, self.works, lambda: self.address, self.limiter, clock=lambda: self.now_s,
            known=known,  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.fixture
def site(broker: KafkaBroker, request: pytest.FixtureRequest) -> Iterator[Site]:
    broker.start()
    broker.wait_ready(READY_S)
    command = [sys.executable, "-I", "-S", "-c", "print(flush=True)\nimport time\ntime.sleep(600)"]
    limiter = Limiter(f"meter-{os.getpid()}", cgroup.find(), lambda _: None)
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as runner:
        assert runner.stdout is not None
        runner.stdout.readline()
        yield Site(broker.address, runner.pid, limiter)
        runner.kill()
    for name in limiter.limits():
        limiter.drop(name)
    limiter.close()


def let_go(site: Site, topic: str, before: int) -> None:
    with AdminClient(client_settings(site.address)) as admin:
        for future in admin.delete_records([TopicPartition(topic, 0, before)]).values():
            future.result(30)


def test_records_that_come_are_weighed(site: Site) -> None:
    site.add("heavy")
    producer = Producer(client_settings(site.address))
    for _ in range(30):
        producer.produce("heavy", b"x" * 5_000, partition=0)
    assert producer.flush(30) == 0
    site.say("heavy", 10)
    meter = site.meter()

    def is_weighed() -> bool:  # a thread looks at them, twice a second
        meter.read()
        return bool(meter.record_bytes)

    until(is_weighed, READY_S)
    assert meter.record_bytes == {NAME: 5_000.0}
    meter.close()


def test_rates_are_made_of_counts_and_times_of_the_same_kind(site: Site) -> None:
    site.add("plain")
    site.feed("plain", 1000)
    site.say("plain", 990)
    meter = site.meter()
    assert not meter.read(), "one count is no rate"
    site.feed("plain", 300)
    site.now_s += 1.5
    site.say("plain", 1200)
    site.now_s += 0.5  # what it said is half a second old by now
    found = meter.read()[NAME]
    assert (found.seconds, found.arrivals_rps, found.queue) == (2.0, 150.0, 100.0)
    assert found.throughput_rps == pytest.approx(210 / 1.5)
    assert 0.0 <= found.used < 0.05
    meter.close()


def test_a_runner_that_said_nothing_is_left_out_and_counted_over_the_longer_time(site: Site) -> None:
    site.add("silent")
    site.feed("silent", 10)
    site.say("silent", 10)
    meter = site.meter()
    meter.read()
    site.feed("silent", 40)
    site.now_s += 1.0
    assert not meter.read()
    site.feed("silent", 40)
    site.now_s += 1.0
    site.say("silent", 90)
    found = meter.read()[NAME]
    assert (found.seconds, found.arrivals_rps, found.throughput_rps, found.queue) == (2.0, 40.0, 40.0, 0.0)
    meter.close()


def test_records_that_are_old_and_go_are_no_arrivals(site: Site) -> None:
    site.add("old")
    site.feed("old", 5000)
    site.say("old", 5000)
    meter = site.meter()
    meter.read()
    let_go(site, "old", 4000)
    site.feed("old", 100)
    site.now_s += 1.0
    site.say("old", 1050)  # of those that are still there
    found = meter.read()[NAME]
    assert (found.arrivals_rps, found.throughput_rps, found.queue) == (100.0, 50.0, 50.0)
    meter.close()


def test_a_runner_that_spoke_before_old_records_went_is_counted_when_it_speaks_again(site: Site) -> None:
    site.add("skew")
    site.feed("skew", 9000)
    site.say("skew", 5000)
    meter = site.meter()
    meter.read()
    let_go(site, "skew", 4000)
    site.now_s += 0.5
    site.say("skew", 5025)  # it does not know yet
    site.now_s += 0.5
    assert not meter.read(), "4000 were not taken in a second"
    site.now_s += 1.0
    site.say("skew", 1100)
    found = meter.read()[NAME]
    assert (found.seconds, found.throughput_rps, found.queue) == (2.0, 50.0, 3900.0)
    for step in range(1, 6):  # where some go all the time, it is not waited for for ever
        let_go(site, "skew", 4000 + step)
        site.say("skew", 1100 - step)
        site.now_s += 1.0
        if read := meter.read():
            break
    assert read[NAME].throughput_rps == 0.0
    meter.close()


def test_where_nothing_comes_nothing_is_taken_when_old_records_go(site: Site) -> None:
    site.add("idle")
    site.feed("idle", 5000)
    site.say("idle", 5000)
    meter = site.meter()
    meter.read()
    let_go(site, "idle", 4000)
    rates = []
    for _ in range(3):
        site.now_s += 1.0
        site.say("idle", 5000)  # its client hears of it with the next record
        rates += [one.throughput_rps for one in meter.read().values()]
    site.feed("idle", 10)
    site.now_s += 1.0
    site.say("idle", 1010)
    assert [*rates, meter.read()[NAME].throughput_rps] == [0.0, 0.0, 0.0, 10.0]
    meter.close()


def test_a_runner_that_has_taken_nothing_yet_is_no_beginning(site: Site) -> None:
    site.add("first")
    site.feed("first", 4000)
    site.say("first", 0)
    meter = site.meter()
    meter.read()
    site.now_s += 1.0
    site.say("first", 3900)
    assert not meter.read(), "it did not take 3900 in a second: it had not said what it had taken"
    site.now_s += 1.0
    site.say("first", 3950)
    assert meter.read()[NAME].throughput_rps == 50.0
    meter.close()


def test_a_broker_that_is_away_holds_up_nobody_and_leaves_no_leap(site: Site, broker: KafkaBroker) -> None:
    for number in range(8):
        site.add(f"away-{number}")
        site.feed(f"away-{number}", 1000)
        site.say(f"away-{number}", 1000)
    meter = site.meter()
    meter.read()
    broker.stop()
    begun_s = time.monotonic()
    site.now_s += 1.0
    for number in range(8):
        site.say(f"away-{number}", 1000)
    assert not meter.read()
    assert time.monotonic() - begun_s < 3.0, "it is asked once, and not for each of eight topics"
    broker.start()
    broker.wait_ready(READY_S)
    site.address = broker.address
    rates = []
    for _ in range(4):
        site.now_s += 1.0
        for number in range(8):
            site.say(f"away-{number}", 1000)
        rates += [one.arrivals_rps for one in meter.read().values()]
    assert rates, "it goes on"
    assert set(rates) == {0.0}
    meter.close()


def test_topics_of_a_slow_broker_are_asked_for_all_at_once_and_not_one_after_the_other(broker: KafkaBroker) -> None:
    names = [f"slow-{number}" for number in range(20)]
    ensure_topics(broker.address, names, partitions=3)
    with closing(Relay(broker.address)) as relay, closing(Spans(relay.address)) as spans:

        def held() -> set[str]:
            begun_s = time.monotonic()
            found = spans.held(names)
            assert time.monotonic() - begun_s < 1.5, "what has not come by then is not known this time"
            return set(found)

        for delay_s, known in ((0.0, set(names)), (0.1, set(names)), (3.0, set()), (0.0, set(names))):
            relay.delay_s = delay_s
            until(lambda known=known: held() == known, READY_S)  # type: ignore[misc]


def test_a_topic_that_is_gone_hides_no_other_and_one_that_comes_back_is_known_again(site: Site) -> None:
    for topic in ("stays", "goes"):
        ensure_topics(site.address, [topic], partitions=2)
        site.feed(topic, 10)
    spans = Spans(site.address)
    until(lambda: spans.held(["stays", "goes"]) == {"stays": (0, 10), "goes": (0, 10)}, READY_S)
    remove_topics(site.address, ["goes"])
    until(lambda: spans.held(["stays", "goes", "never"]) == {"stays": (0, 10)}, READY_S)
    ensure_topics(site.address, ["goes"])
    until(lambda: spans.held(["stays", "goes"]) == {"stays": (0, 10), "goes": (0, 0)}, READY_S)
    assert spans.held([]) == {}
    spans.close()


def test_records_of_a_transaction_that_is_open_have_not_come_yet(site: Site) -> None:
    ensure_topics(site.address, ["open"])
    producer = Producer({**client_settings(site.address), "transactional.id": "open"})
    producer.init_transactions(READY_S)
    producer.begin_transaction()
    producer.produce("open", "x", partition=0)
    assert producer.flush(30) == 0
    spans = Spans(site.address)
    until(lambda: spans.held(["open"]) == {"open": (0, 0)}, READY_S)
    producer.commit_transaction(READY_S)
    until(lambda: spans.held(["open"]) == {"open": (0, 2)}, READY_S)  # with the mark of its end
    spans.close()


def test_the_meter_of_the_next_agent_goes_on_from_what_was_counted(site: Site) -> None:
    site.add("next")
    site.feed("next", 100)
    site.say("next", 100)
    meter = site.meter()
    meter.read()
    known = meter.known
    meter.close()
    site.feed("next", 60)
    site.now_s += 3.0
    site.say("next", 130)
    other = site.meter(known)
    found = other.read()[NAME]
    assert (found.seconds, found.arrivals_rps, found.throughput_rps, found.queue) == (3.0, 20.0, 10.0, 30.0)
    other.close()
    for wrong in ({NAME: None}, {NAME: {"leader": 1}}, {NAME: {**known[NAME], "at_s": site.now_s - 3600.0}}):
        fresh = site.meter(wrong)
        assert not fresh.read(), "what is torn or old is nothing to go on from"
        fresh.close()


def test_a_job_that_failed_is_left_out_and_one_that_starts_is_waited_for(site: Site) -> None:
    site.add("good")
    site.add("bad", "failed")
    site.feed("good", 50)
    site.say("good", 50)
    meter = site.meter()
    meter.read()
    site.now_s += 1.0
    site.say("good", 50)
    assert meter.read()[NAME].arrivals_rps == 0.0
    site.states["job-bad"] = Running("starting", "query-bad")
    site.now_s += 1.0
    site.say("good", 50)
    assert not meter.read()
    assert site.works()[NAME].is_starting
    site.states["job-bad"] = Running("starting", "query-bad", told={"failure": "its sink is away"})
    for state in ("starting", "waiting", "starting"):  # it is tried again and again
        site.states["job-bad"] = replace(site.states["job-bad"], state=state)
        site.now_s += 1.0
        site.say("good", 50)
        assert meter.read()[NAME].arrivals_rps == 0.0, "the job beside it is measured"
        assert not site.works()[NAME].is_starting
    meter.close()

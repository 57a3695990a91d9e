"""Does a pipeline cut across sites lose or double anything, whatever dies? The command as a user starts it."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from headwater.bind.headers import headers_of
from headwater.bind.topics import remove_topics
from tests.plain_spark import session
from tests.plane import Plane, Record, plane
from tests.results import compared, placements

DATA = Path(__file__).parent.parent / "data"
pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]
RATE_RPS = 200.0


def number(number: int) -> Record:
    row = {"id": number, "key": f"k{number % 7}", "at": f"2026-01-01T00:{number // 2000 % 60:02d}:{number % 60:02d}Z"}
    return "numbers", None, json.dumps(row).encode()


class Load:
    """Feeds numbers until it is told to stop; knows how many."""

    def __init__(self, run: Plane, start: int = 0, make: Callable[[int], Record] = number) -> None:
        self.count = start
        self._make = make
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: run.feed("pi", self._records(), RATE_RPS))
        self._thread.start()

    def _records(self) -> Iterator[Record]:
        while not self._stop.is_set():
            yield self._make(self.count)
            self.count += 1

    def stop(self) -> int:
        self._stop.set()
        self._thread.join(180.0)
        return self.count


def check(run: Plane, count: int, table: Path) -> None:
    """Everything came once, in order; every update was told once; the table holds every record once."""
    rows = [json.loads(one.value() or b"") for one in run.settle("dc", "rows", count, 180.0)]
    assert [row["id"] for row in rows] == list(range(count)), "lost, doubled or out of order"
    assert all(row["square"] == row["id"] ** 2 for row in rows)
    updates = [json.loads(one.value() or b"") for one in run.settle("dc", "updates", count, 180.0)]
    told = Counter((update["minute"], update["key"], update["records"]) for update in updates)
    groups = Counter(json.loads(number(one)[2])["at"][:16] + json.loads(number(one)[2])["key"] for one in range(count))
    assert len(updates) == count
    assert set(told.values()) == {1}, "an update was told twice"
    assert len({(minute, key) for minute, key, _ in told}) == len(groups)
    kept = _kept(run, table, count)
    assert sorted(kept) == list(range(count))


def _kept(run: Plane, table: Path, count: int) -> list[int]:
    """Return the ids in a table, as any reader that knows Spark's log of files sees them."""
    import pyarrow.parquet as pq

    for _ in range(60):
        found: list[int] = []
        for log in sorted((table / "_spark_metadata").glob("[0-9]*"), key=lambda one: int(one.name.partition(".")[0])):
            if ".compact" in log.name:
                found = []
            for line in log.read_text("utf-8").splitlines()[1:]:
                file = table / json.loads(line)["path"].rpartition("/")[2]
                found += pq.read_table(file, columns=["id"])["id"].to_pylist()
        if len(found) >= count:
            return found
        run.latest()
    return found


def test_whatever_dies_nothing_is_lost_doubled_or_out_of_order(tmp_path: Path) -> None:
    project, state = DATA / "lanes", tmp_path / "state"
    options = ("--placement", str(project / "three.yaml"))
    table = state / "sites" / "dc" / "tables" / "kept"
    with plane(project, project / "sites.yaml", state, *options) as run:
        lanes = Counter(one["lane"] for one in run.ready()["fragments"])
        assert lanes == {"real-time": 4, "micro-batch": 1}
        load = Load(run)
        try:
            for site in ("pi", "hub", "dc"):
                run.kill(site, "runner")
                run.kill(site, "broker")
        finally:
            count = load.stop()
        check(run, count, table)
        summary = run.end()
    assert all(site["runner_restarts"] == site["broker_restarts"] == 1 for site in summary["sites"].values())
    assert run.process.returncode == 0
    with plane(project, project / "sites.yaml", state) as run:  # planned: it goes on where it ended
        run.ready()
        count += run.feed("pi", (number(one) for one in range(count, count + 200)), RATE_RPS)
        check(run, count, table)
        processes = psutil.Process(run.process.pid).children(recursive=True)
        run.end()
    assert not [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


@pytest.fixture
def risky(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA / "risky", tmp_path / "risky"))


def mixed(count: int) -> Iterator[Record]:
    for one in range(count):
        yield "numbers", None, b"no number" if one == 50 else str(one).encode()


def test_a_bad_record_or_a_deleted_topic_stops_its_fragment_alone_and_is_named(risky: Path, tmp_path: Path) -> None:
    settings = risky / "headwater.yml"
    settings.write_text(settings.read_text("utf-8").replace("quarantine", "stop"), "utf-8")
    options = ("--placement", str(risky / "two.yaml"))
    with plane(risky, risky / "sites.yaml", tmp_path / "state", *options) as run:
        run.ready()
        run.feed("pi", mixed(100))
        error = run.wait(lambda event: event["event"] == "error", 120.0)
        assert (error["fragment"], error["operator"], error["record"]) == ("good", "lucky", "hw.risky.parsed/0/13")
        assert error["text"] == "ValueError: 13 brings no luck"
        assert "line 15, in checked" in error["trace"]
        assert len(run.settle("dc", "all", 100)) == 100, "other fragments go on"
        run.end()
    assert run.process.returncode == 4
    settings.write_text(settings.read_text("utf-8").replace("stop", "quarantine"), "utf-8")
    with plane(risky, risky / "sites.yaml", tmp_path / "state") as run:  # nothing was lost meanwhile
        run.ready()
        good = sorted(int(one.value() or b"") for one in run.settle("dc", "good", 98, 180.0))
        assert good == [one for one in range(100) if one not in {13, 50}]
        aside = run.read("dc", "hw.risky.good.quarantine")
        reasons = {headers["hw-record"]: headers["hw-reason"] for headers in map(headers_of, aside)}
        assert reasons.keys() == {b"hw.risky.parsed/0/13", b"hw.risky.parsed/0/50"}
        assert b"13 brings no luck" in reasons[b"hw.risky.parsed/0/13"]
        assert b"CAST_INVALID_INPUT" in reasons[b"hw.risky.parsed/0/50"]
        check_refused(run, risky, tmp_path / "state")
        check_topic_deleted(run)
        run.end()


def check_topic_deleted(run: Plane) -> None:
    """A topic that is deleted underneath stops its reader and no other."""
    before = len(run.events)
    remove_topics(run.ready()["brokers"]["pi"], ["numbers"])
    error = run.wait(lambda event: event["event"] in {"error", "warning"}, 120.0, before)
    assert error["fragment"] == "parsed"
    others = {one["id"]: one["state"] for one in run.latest()["fragments"] if one["id"] != "parsed"}
    assert set(others.values()) == {"running"}


def check_refused(run: Plane, project: Path, state: Path) -> None:
    """A second run with the same state folder is refused while the first goes on."""
    assert isinstance(run.process.args, list)
    words = [*run.process.args[:3], "run", str(project), "--sites", str(project / "sites.yaml"), "--state", str(state)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4
    assert "HW4604" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is a disk of its own, with little room."""
    folder = tmp_path / "state" / "sites" / "dc"
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "none", str(folder)], check=False)
    if done.returncode != 0:
        pytest.skip("a disk of its own needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def test_a_full_disk_stops_its_site_until_there_is_room_and_nothing_is_lost(
    risky: Path, tmp_path: Path, small_disk: Path
) -> None:
    options = ("--placement", str(risky / "two.yaml"))
    with plane(risky, risky / "sites.yaml", tmp_path / "state", *options) as run:
        run.ready()
        load = Load(run, make=lambda number: ("numbers", None, str(number * 100).encode()))
        try:
            run.wait(lambda event: event["event"] == "progress" and is_past(event, "all", 100), 60.0)
            ballast = fill(small_disk)
            before = len(run.events)
            run.wait(lambda event: event["event"] == "warning" and event["site"] == "dc", 120.0, before)
            states = {one["id"]: one["state"] for one in run.latest()["fragments"]}
            assert states["parsed"] == "running", "the other site goes on"
            ballast.unlink()
        finally:
            count = load.stop()
        for topic in ("good", "all"):
            found = [int(one.value() or b"") for one in run.settle("dc", topic, count, 180.0)]
            assert found == [one * 100 for one in range(count)], "lost, doubled or out of order"
        run.end()


def is_past(progress: dict[str, Any], fragment: str, count: int) -> bool:
    return any(one["id"] == fragment and one["out_total"] >= count for one in progress["fragments"])


def test_records_of_another_schema_stop_the_reader_and_stay(risky: Path, tmp_path: Path) -> None:
    options = ("--placement", str(risky / "two.yaml"))
    settings = risky / "headwater.yml"
    settings.write_text(settings.read_text("utf-8").replace("quarantine", "stop"), "utf-8")
    library = risky / "risky.py"
    with plane(risky, risky / "sites.yaml", tmp_path / "state", *options) as run:
        run.ready()
        run.feed("pi", (("numbers", None, str(one).encode()) for one in range(20, 25)))
        run.settle("dc", "all", 5)
        run.end()
    text = library.read_text("utf-8")
    library.write_text(
        text.replace(
            '.alias("text"))\n\n\n@dp.temporary_view\ndef lucky',
            '.alias("text"), F.lit(1).alias("more"))\n\n\n@dp.temporary_view\ndef lucky',
        ),
        "utf-8",
    )
    assert library.read_text("utf-8") != text
    with plane(risky, risky / "sites.yaml", tmp_path / "state") as run:
        run.ready()
        run.feed("pi", (("numbers", None, str(one).encode()) for one in range(25, 30)))
        found = [one.value() for one in run.settle("dc", "all", 10)]
        assert sorted(int(one or b"") for one in found) == list(range(20, 30)), "what was read before is not read again"
        run.end()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    found = session()
    yield found
    found.stop()


@pytest.mark.parametrize("name", ["fire", "traffic"])  # bench.results runs all, on more placements
def test_an_example_gives_the_same_cut_across_sites_as_uncut(name: str, tmp_path: Path, spark: Any) -> None:
    count, placement = list(placements(name))[3]
    result = compared(name, count, placement, tmp_path, spark)
    assert (result["lost"], result["doubled"]) == (0, 0)
    assert result["owed"] == result["came"] > 0

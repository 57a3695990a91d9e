"""Does a project cut across sites give what it gives uncut?

Runs an example as a user would (`headwater run`, `tests.plane`) on some placement, feeds it made records, and
compares everything that comes out with what plain Spark makes of the same records (`tests.plain_spark`), as
multisets. Used by the story and by `python -m bench.results`.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from headwater.serve.feed import Record, sent_records
from tests.plain_spark import EXAMPLES, Row, reference
from tests.plane import Plane, plane

SETTLED_S = 150.0


@dataclass(frozen=True)
class Example:
    """What a comparison must know of an example."""

    sources: Mapping[str, str]  # by topic: who reads it
    sinks: Mapping[str, str]  # by operator: its topic
    operators: tuple[str, ...]  # those that may stand anywhere; sinks stand on the root
    count: int  # records to feed into each site
    settings: Mapping[str, str]
    is_replicated: bool = False


EXAMPLE = {
    "readings": Example({"readings": "readings"}, {"alerts": "alerts"}, ("parsed", "hot"), 600, {}),
    "fire": Example(
        {"tree-reports": "tree_source", "location-reports": "location_source"},
        {"temp_monitor": "fire-temperatures", "alert_monitor": "fire-alerts"},
        (
            *("tree_split", "tree_temp", "tree_image", "tree_result"),
            *("location_split", "location_temp", "location_image", "location_result", "connect"),
        ),
        200,
        {"tree_side": "20", "location_side": "30"},
    ),
    "traffic": Example(
        {"taxis": "taxis"},
        {"forwarded": "forwarded"},
        ("clean", "forward", "local_statistics"),
        700,
        {},
        is_replicated=True,
    ),
}
TAGS = ["sensors", "edge-a", "edge-b", "edge"]


def sites(count: int, is_replicated: bool) -> dict[str, Any]:
    """Return a sites file of so many sites; the last one is the root, and may be all."""
    names = [*(f"site{number}" for number in range(1, count)), "root"]
    found = {}
    for number, name in enumerate(names):
        has_sources = number == 0 or (is_replicated and name != "root")
        kind = "root" if name == "root" else "leaf" if has_sources else "middle"
        found[name] = {"kind": kind, "class": "high", "slots": 40, "tags": TAGS if has_sources else []}
    links = [{"between": [name, "root"], "latency": "1 ms", "bandwidth": "1 Gbit/s"} for name in names[:-1]]
    return {"sites": found, "links": links}


def placements(name: str, counts: tuple[int, ...] = (1, 2, 2, 3, 3, 4, 4)) -> Iterator[tuple[int, dict[str, str]]]:
    """Give pairs of a number of sites and a placement on them, each another one."""
    example = EXAMPLE[name]
    for seed, count in enumerate(counts):
        chance = random.Random(f"{name}/{seed}")
        names = list(sites(count, example.is_replicated)["sites"])
        spread = {operator: chance.choice(names) for operator in example.operators}
        if count == 2 and seed % 2:  # everything where the data is born
            spread = dict.fromkeys(example.operators, names[0])
        if not example.is_replicated:
            spread |= {source: names[0] for source in example.sources.values()}
        yield (
            count,
            spread
            | dict.fromkeys(example.sinks, "root")
            | ({"global_statistics": "root"} if name == "traffic" else {}),
        )


def compared(name: str, count: int, placement: Mapping[str, str], folder: Path, spark: SparkSession) -> dict[str, Any]:
    """Run an example on a placement; return how many rows were owed and how many came, were lost and doubled."""
    example = EXAMPLE[name]
    folder.mkdir(parents=True, exist_ok=True)
    sites_file, placement_file = folder / "sites.yaml", folder / "placement.yaml"
    sites_file.write_text(yaml.safe_dump(sites(count, example.is_replicated)), "utf-8")
    placement_file.write_text(yaml.safe_dump(dict(placement)), "utf-8")
    options = ("--placement", str(placement_file))
    with plane(EXAMPLES / name, sites_file, folder / "state", *options) as run:
        ready = run.ready()
        births = sorted({one["site"] for one in ready["fragments"] if one["has_source"]})
        fed = {
            site: sent_records(str(EXAMPLES / name), site, 1, example.count, settings=example.settings)
            for site in births
        }
        closing = {
            site: sent_records(str(EXAMPLES / name), site, 1, 0, should_close=True) if example.is_replicated else []
            for site in births
        }
        wanted = reference(
            name, [one for each in (fed, closing) for records in each.values() for one in records], spark
        )
        for site, records in fed.items():
            run.feed(site, _of_sources(records, site, example, ready))
        for round_number in range(max(map(len, closing.values()))):
            _drain(run)
            for site, records in closing.items():
                run.feed(site, records[round_number : round_number + 1])
        found = {
            operator: _rows_of_topic(run, topic, wanted[operator].total()) for operator, topic in example.sinks.items()
        }
        for table in wanted.keys() - found.keys():
            _drain(run)
            found[table] = _rows_of_table(
                run, folder / "state" / "sites" / "root" / "tables" / table, wanted[table], spark
            )
        run.end()
    return {
        "example": name,
        "sites": count,
        "fragments": len(ready["fragments"]),
        "lanes": dict(Counter(one["lane"] for one in ready["fragments"])),
        "owed": sum(rows.total() for rows in wanted.values()),
        "came": sum(rows.total() for rows in found.values()),
        "lost": sum((wanted[one] - found[one]).total() for one in wanted),
        "doubled": sum((found[one] - wanted[one]).total() for one in wanted),
        "placement": dict(ready["placement"]),
    }


def _of_sources(records: list[Record], site: str, example: Example, ready: Mapping[str, Any]) -> Iterator[Record]:
    for record in records:
        source = example.sources[record[0]]
        assert ready["placement"].get(source, site) == site, "all sources of an example stand together here"
        yield record


def _drain(run: Plane, timeout_s: float = SETTLED_S) -> None:
    """Wait until nothing moves: no lag, and the same totals for four seconds."""
    end_s, before, calm = time.monotonic() + timeout_s, None, 0
    while calm < 4:
        event = run.latest()
        totals = [(one["id"], one["in_total"], one["out_total"], one["lag"]) for one in event["fragments"]]
        calm = calm + 1 if totals == before and not any(one["lag"] for one in event["fragments"]) else 0
        before = totals
        assert time.monotonic() < end_s, f"it does not come to rest: {totals} {run.told()}"


def _rows_of_topic(run: Plane, topic: str, count: int) -> Counter[Row]:
    messages = run.settle("root", topic, count, SETTLED_S)
    return Counter(((one.key() or b"").decode() or None, (one.value() or b"").decode()) for one in messages)


def _rows_of_table(run: Plane, folder: Path, wanted: Counter[Row], spark: SparkSession) -> Counter[Row]:
    end_s = time.monotonic() + SETTLED_S
    while True:
        run.latest()
        found: Counter[Row] = Counter()
        if (folder / "_spark_metadata" / "0").exists():
            table = spark.read.parquet(str(folder))
            found = Counter(
                (None, row["value"]) for row in table.select(F.to_json(F.struct("*")).alias("value")).collect()
            )
        if found.total() >= wanted.total() or time.monotonic() > end_s:
            return found


def line(result: Mapping[str, Any]) -> str:
    """Return a result as one line."""
    return json.dumps({key: value for key, value in result.items() if key != "placement"})

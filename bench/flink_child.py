"""What is under test? One of the queries in Flink, in a process and an environment of its own.

`python -m bench.flink_child`, driven like `bench.lanes_child`. Runs in an environment that has apache-flink and
nothing of ours, so it imports neither Headwater nor the rest of this package. The job runs in Flink's
cluster within one process, as SQL: no Python is called for a record.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from bench.driven import drive

__all__ = ["main"]

RUNNING_S = 120.0
# In both lanes: one partition needs one task; what is written is kept as often as our real-time lane does.
COMMON = {"parallelism.default": "1", "execution.checkpointing.interval": "60 s"}
TUNED = {"execution.buffer-timeout.interval": "0 ms", "pipeline.object-reuse": "true"}
TOPIC = "'topic' = '{topic}', 'properties.bootstrap.servers' = '{address}'"
KEYED = "'key.format' = 'raw', 'key.fields' = 'k', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'"
SOURCE = (
    "CREATE TEMPORARY TABLE source{n} (k STRING, v STRING) "
    f"WITH ('connector' = 'kafka', {TOPIC}, {KEYED}, 'scan.startup.mode' = 'earliest-offset')"
)
ROWS = f"CREATE TEMPORARY TABLE sink{{n}} (k STRING, v STRING) WITH ('connector' = 'kafka', {TOPIC}, {KEYED}{{more}})"
UPDATES = (
    "CREATE TEMPORARY TABLE sink{n} (head STRING, records BIGINT, latest BIGINT, PRIMARY KEY (head) NOT ENFORCED) "
    f"WITH ('connector' = 'upsert-kafka', {TOPIC}, 'key.format' = 'raw', 'value.format' = 'json'{{more}})"
)
ENCODED = "TO_BASE64(SUBSTRING(v, 1, {head}))"
PLACE = "JSON_OBJECT(KEY 'group' VALUE g.name, KEY 'place' VALUE g.place)"
QUERIES: Mapping[str, tuple[str, str]] = {  # the sink, and what is written to it
    "encode": (ROWS, f"SELECT k, {ENCODED} FROM source{{n}}"),
    "encode-count": (
        UPDATES,
        f"SELECT head, COUNT(*), MAX(id) FROM (SELECT CAST(k AS BIGINT) AS id, {ENCODED} AS head FROM source{{n}}) "
        "GROUP BY head",
    ),
    "table-join": (
        ROWS,
        f"SELECT r.k, {PLACE} FROM source{{n}} AS r JOIN (VALUES {{table}}) AS g (name, place) "
        "ON SUBSTRING(r.v, 11, 4) = g.name",
    ),
}


class Lane:
    """An environment, and one job after another in it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        """Start Flink."""
        self._job = job
        self._is_tuned = job["lane"] == "flink tuned"
        settings = {**COMMON, **(TUNED if self._is_tuned else {}), "pipeline.jars": job["connector"]}
        configuration = Configuration()
        for key, value in settings.items():
            configuration.set_string(key, value)
        chosen = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
        self._tables = TableEnvironment.create(chosen)
        self._count = 0
        self._client: Any = None

    def start(self, source: str, sink: str) -> dict[str, Any]:
        """Start a job; say when it runs."""
        self._count += 1
        job = self._job
        table = ", ".join(f"('g{number:03d}', 'place {number}')" for number in range(job["groups"]))
        made, query = QUERIES[job["kind"]]
        words = {"n": self._count, "address": job["address"], "head": job["head"], "table": table}
        more = ", 'properties.linger.ms' = '0'" if self._is_tuned else ""
        self._tables.execute_sql(SOURCE.format(topic=source, **words))
        self._tables.execute_sql(made.format(topic=sink, more=more, **words))
        done = self._tables.execute_sql(f"INSERT INTO sink{self._count} {query.format(**words)}")
        self._client = done.get_job_client()
        end_s = time.monotonic() + RUNNING_S
        while self._state() != "RUNNING":
            if time.monotonic() > end_s:
                return {"event": "refused", "why": f"the job is {self._state()} after {RUNNING_S:.0f} s"}
            time.sleep(0.05)
        return {"event": "taking"}

    def stop(self) -> dict[str, Any]:
        """Stop it; say whether it had failed."""
        state = self._state()
        self._client.cancel().result()
        return {"event": "stopped", "failure": None if state == "RUNNING" else f"the job is {state}"}

    def _state(self) -> str:
        return str(self._client.get_job_status().result().name)


def main() -> None:
    """Do what the lines on standard input say."""
    drive(Lane)


if __name__ == "__main__":
    main()

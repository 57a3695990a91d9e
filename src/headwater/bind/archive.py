"""How do Spark and Kafka start in half the time?

Much of what a starting JVM does is to read and check thousands of classes. Java can keep them ready in an
archive (class data sharing): one for Spark with all that our queries touch, one for the broker. They are
made once for each version of Java, Spark and the jars, by running both for a moment. Without an archive
everything works, only slower; a JVM that it does not fit leaves it aside. Beside them lies what Kafka's own
tool prepares the folder of a new broker with: copied, it saves one more JVM for each broker.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from headwater.bind.jars import Jars, jars_folder
from headwater.bind.java import java, release
from headwater.bind.kafka import BOOTSTRAP, KafkaBroker
from headwater.errors import BindError

__all__ = ["are_made", "ensure", "flags"]

PATIENCE_S = 300.0
FILES = {
    "spark": "spark.jsa",
    "kafka": "kafka.jsa",
    "bootstrap": BOOTSTRAP,  # no classes: what Kafka's own tool prepares a broker's folder with, in a JVM of its own
}


@lru_cache(1)
def _folder() -> Path:
    """Return where the archives for this Java, Spark and these jars lie, or would lie."""
    said = release(str(java())).splitlines()
    which = "\n".join(line for line in said if not line.startswith("Picked up"))  # from the environment
    what = (which, version("pyspark"), jars_folder().name, platform.machine(), _WARM_UP.read_text("utf-8"))
    digest = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    return jars_folder().parent / f"classes-{digest}"


_WARM_UP = Path(__file__).with_name("warm_up.py")


def are_made() -> bool:
    """Return whether all of them are there."""
    return all(_folder().joinpath(file).exists() for file in FILES.values())


def flags(archive: Path | None) -> list[str]:
    """Return what makes Java use an archive, and be quiet if it does not fit."""
    return [] if archive is None else [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable"]


def ensure(jars: Jars, say: Callable[[str], None]) -> dict[str, Path]:
    """Return the archives by name; makes those that are not there, which takes half a minute, once.

    A machine that cannot make them goes without: then nothing is returned for their names.
    """
    folder = _folder()
    files = {name: folder / file for name, file in FILES.items()}
    if are_made():
        return files
    with contextlib.suppress(OSError, BindError, subprocess.SubprocessError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making them
            if not are_made():
                say("preparing Java's classes, once")
                _make(jars, folder)
    return {name: file for name, file in files.items() if file.exists()}


def _make(jars: Jars, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-classes-", dir=folder) as work:
        made = {name: Path(work, file) for name, file in FILES.items()}
        broker = KafkaBroker("warm-up", Path(work, "broker"), jars, flags=[f"-XX:ArchiveClassesAtExit={made['kafka']}"])
        try:
            broker.start()
            broker.wait_ready(PATIENCE_S)
            spec = {
                "address": broker.address,
                "jars": [str(one) for one in jars.spark],
                "folder": str(Path(work, "spark")),
                "archive": str(made["spark"]),
            }
            Path(work, "spec.json").write_text(json.dumps(spec), "utf-8")
            with Path(work, "log").open("wb") as log:
                command = [sys.executable, "-m", "headwater.bind.warm_up", str(Path(work, "spec.json"))]
                subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=PATIENCE_S, check=True
                )
        finally:
            broker.stop(60.0)  # it writes its archive now
            with contextlib.suppress(OSError):
                shutil.copyfile(Path(work, "broker", "data", BOOTSTRAP), made["bootstrap"])
            if os.environ.get("HEADWATER_DEBUG") == "1":
                with contextlib.suppress(OSError):
                    shutil.copy(Path(work, "log"), folder / "log")
        for file in made.values():
            if file.exists():
                file.replace(folder / file.name)

"""How do Spark and Kafka start in half the time?

Much of what a starting JVM does is to read and check thousands of classes. Java can keep them ready in an
archive (class data sharing): one for Spark with all that our queries touch, one for the broker. They are
made once for each version of Java, Spark and the jars, by running both for a moment. Without an archive
everything works, only slower; a JVM that it does not fit leaves it aside.
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
from importlib.metadata import version
from pathlib import Path

from headwater.bind.jars import Jars, jars_folder
from headwater.bind.java import java
from headwater.bind.kafka import KafkaBroker
from headwater.errors import BindError

__all__ = ["are_made", "ensure"]

PATIENCE_S = 300.0
NAMES = ("spark", "kafka")


def _archive_file(name: str) -> Path:
    """Return where an archive lies, or would lie."""
    said = subprocess.run([java(), "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    what = (said, version("pyspark"), jars_folder().name, platform.machine(), _WARM_UP.read_text("utf-8"))
    digest = hashlib.sha256("\n".join(what).encode()).hexdigest()[:16]
    return jars_folder().parent / f"classes-{digest}" / f"{name}.jsa"


_WARM_UP = Path(__file__).with_name("warm_up.py")


def are_made() -> bool:
    """Return whether both archives are there."""
    return all(_archive_file(name).exists() for name in NAMES)


def ensure(jars: Jars, say: Callable[[str], None]) -> dict[str, Path]:
    """Return the archives by name; makes those that are not there, which takes half a minute, once.

    A machine that cannot make them goes without: then nothing is returned for their names.
    """
    files = {name: _archive_file(name) for name in NAMES}
    if all(file.exists() for file in files.values()):
        return files
    folder = files["spark"].parent
    with contextlib.suppress(OSError, BindError, subprocess.SubprocessError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making them
            if not all(file.exists() for file in files.values()):
                say("preparing Java's classes, once")
                _make(jars, folder)
    return {name: file for name, file in files.items() if file.exists()}


def _make(jars: Jars, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-classes-", dir=folder) as work:
        made = {name: Path(work, f"{name}.jsa") for name in NAMES}
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
            if os.environ.get("HEADWATER_DEBUG") == "1":
                with contextlib.suppress(OSError):
                    shutil.copy(Path(work, "log"), folder / "log")
        for name, file in made.items():
            if file.exists():
                file.replace(folder / f"{name}.jsa")

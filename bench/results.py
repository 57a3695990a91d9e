"""Are results of a pipeline cut across sites those of the same pipeline uncut?

    python -m bench.results [--only readings,fire,traffic] [--out out/results.json]

Runs each example on seven placements over 1 to 4 sites with the real command, feeds it made records and compares all
that comes out with plain Spark on the same records, as multisets.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from tests.plain_spark import session
from tests.results import EXAMPLE, compared, placements

HEADS = ("example", "sites", "fragments", "owed", "came", "lost", "doubled", "seconds")


def main() -> None:
    """Run all cases, print a line for each and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(EXAMPLE), help="examples, with commas between")
    parser.add_argument("--out", default="out/results.json", help="where the JSON goes")
    options = parser.parse_args()
    spark = session()
    results = []
    print("".join(f"{head:>10}" for head in HEADS))
    for name in options.only.split(","):
        for count, placement in placements(name):
            begun_s = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="headwater-results-") as folder:
                result = compared(name, count, placement, Path(folder), spark)
            result["seconds"] = round(time.monotonic() - begun_s, 1)
            results.append(result)
            print("".join(f"{result[head]!s:>10}" for head in HEADS), flush=True)
            Path(options.out).parent.mkdir(parents=True, exist_ok=True)
            Path(options.out).write_text(json.dumps(results, indent=1), encoding="utf-8")
    spark.stop()
    wrong = [one for one in results if one["lost"] or one["doubled"]]
    print(f"{len(results)} runs, {len(wrong)} with a difference")


if __name__ == "__main__":
    main()

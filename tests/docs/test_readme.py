"""Do the README and other pages show what the commands print? Blocks are run; `make golden` writes them again."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/latency.md", "examples/control/README.md")
SHOWN = re.compile(r"```console\n\$ (headwater [^\n]+)\n```\n+```text\n(.*?)```\n", re.DOTALL)
TIME = r"[\d.,]+ (?:ns|us|ms|s|min)"
WRITES = os.environ.get("HEADWATER_GOLDEN") == "write"


def output_of(command: str) -> str:
    words = [sys.executable, "-m", "headwater.serve.main", *shlex.split(command)[1:]]
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    told = [line for line in done.stderr.splitlines() if not line.startswith("compiling")]
    lines = [line.rstrip() for line in (*done.stdout.splitlines(), *told)]
    return "\n".join(lines).strip("\n") + "\n"


def masked(text: str) -> str:
    text = re.sub(rf"\bin {TIME}", "in TIME", text)
    text = re.sub(rf"{TIME}(?=\s+(?:yes|no)\s*$)", "TIME", text, flags=re.MULTILINE)
    return re.sub(r"[ ─]+", " ", text).strip()


BLOCKS = [(page, *block) for page in PAGES for block in SHOWN.findall((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize(("page", "least"), tuple(zip(PAGES, (3, 2, 2), strict=True)))
def test_a_page_has_blocks_to_run(page: str, least: int) -> None:
    assert sum(of == page for of, _, _ in BLOCKS) >= least


@pytest.mark.parametrize(("page", "command", "shown"), BLOCKS, ids=[f"{page}: {words}" for page, words, _ in BLOCKS])
def test_a_page_shows_true_output(page: str, command: str, shown: str) -> None:
    found = output_of(command)
    if WRITES:
        text = (ROOT / page).read_text(encoding="utf-8")
        old = f"$ {command}\n```\n\n```text\n{shown}```\n" if f"```\n\n```text\n{shown}" in text else None
        assert old is not None, "a console block is followed by an empty line and a text block"
        (ROOT / page).write_text(text.replace(old, f"$ {command}\n```\n\n```text\n{found}```\n"), encoding="utf-8")
        return
    assert masked(found) == masked(shown)


@pytest.mark.parametrize("page", sorted(["README.md", "CONTRIBUTING.md", *map(str, Path("docs").glob("*.md"))]))
def test_links_between_pages_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"

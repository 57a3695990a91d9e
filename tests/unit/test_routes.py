"""Which way data takes: latency, then links, then names."""

from __future__ import annotations

import subprocess
import sys

from headwater.model.routes import Routes
from headwater.model.sites import Link, Site, Sites

MS = 1e-3


def routes(*links: tuple[str, str, float], more: str = "") -> Routes:
    names = sorted({name for a, b, _ in links for name in (a, b)} | set(more))
    return Routes(Sites(tuple(Site(name) for name in names), tuple(Link(a, b, s, 1e9) for a, b, s in links)))


def way(found: Routes, a: str, b: str) -> str:
    codes = found.between(found.vertex[a], found.vertex[b])
    assert codes is not None
    return "".join((a, *(found.names[found.towards[code]] for code in codes)))


def test_less_latency_wins_over_fewer_links() -> None:
    found = routes(("a", "b", 5 * MS), ("a", "c", 2 * MS), ("c", "b", 2 * MS))
    assert way(found, "a", "b") == "acb"


def test_fewer_links_win_among_equal_latencies() -> None:
    found = routes(("a", "b", 4 * MS), ("a", "c", 2 * MS), ("c", "b", 2 * MS))
    assert way(found, "a", "b") == "ab"


def test_names_decide_on_a_ring_of_four() -> None:
    """a - b - d and a - c - d cost the same: b comes before c."""
    found = routes(("a", "b", MS), ("b", "d", MS), ("a", "c", MS), ("c", "d", MS))
    assert way(found, "a", "d") == "abd"
    assert way(found, "d", "a") == "dba"  # the same links, back
    assert way(found, "b", "c") == "bac"  # over a rather than over d


def test_names_are_read_from_the_alphabetically_smaller_end() -> None:
    """Ways from a to z: a-b-y-z and a-c-x-z. From a the first is smaller; from z it would be the second."""
    found = routes(
        ("a", "b", MS), ("b", "y", MS), ("y", "z", MS), ("a", "c", MS), ("c", "x", MS), ("x", "z", MS)
    )  # fmt: skip
    assert way(found, "a", "z") == "abyz"
    assert way(found, "z", "a") == "zyba"


def test_latencies_are_compared_in_whole_nanoseconds() -> None:
    """0.3 ns more is the same latency, so that the names decide; 0.7 ns more is not."""
    ring = [("b", "d", MS), ("a", "c", MS), ("c", "d", MS)]
    assert way(routes(("a", "b", MS + 0.3e-9), *ring), "a", "d") == "abd"
    assert way(routes(("a", "b", MS + 0.7e-9), *ring), "a", "d") == "acd"


def test_sums_are_exact_where_floating_point_is_not() -> None:
    """0.1 + 0.2 ms equals 0.3 ms here, although 0.0001 + 0.0002 != 0.0003 in floating point."""
    found = routes(("a", "b", 0.0001), ("b", "d", 0.0002), ("a", "c", 0.00015), ("c", "d", 0.00015))
    assert way(found, "a", "d") == "abd"


def test_the_order_in_the_file_plays_no_part() -> None:
    links = [("d", "c", MS), ("c", "a", MS), ("b", "d", MS), ("b", "a", MS)]
    assert way(routes(*links), "a", "d") == way(routes(*links[::-1]), "a", "d") == "abd"


def test_a_direction_code_names_one_direction_of_a_link() -> None:
    found = routes(("b", "a", MS), ("b", "c", MS))
    assert found.is_tree
    there = found.between(found.vertex["a"], found.vertex["c"])
    back = found.between(found.vertex["c"], found.vertex["a"])
    assert there == (1, 2)  # link 0 from its second end to its first, link 1 as it is written
    assert back == (3, 0)
    assert found.between(found.vertex["b"], found.vertex["b"]) == ()


def test_a_tree_and_a_graph_answer_alike() -> None:
    tree = [("hub", "a", MS), ("hub", "b", 2 * MS), ("b", "c", MS)]
    one, two = routes(*tree), routes(*tree, ("a", "c", 9 * MS))
    assert one.is_tree
    assert not two.is_tree
    for a in ("hub", "a", "b", "c"):
        for b in ("hub", "a", "b", "c"):
            assert way(one, a, b) == way(two, a, b)


def test_where_no_way_leads_there_is_no_route() -> None:
    found = routes(("a", "b", MS), ("b", "c", MS), ("a", "c", MS), more="yz")
    assert found.between(found.vertex["a"], found.vertex["z"]) is None


def test_a_ring_beside_a_lonely_site_is_not_taken_for_a_tree() -> None:
    """As many links as a tree would have, but no tree; in a process of its own, for it once ended in a crash."""
    program = (
        "from headwater.bind import compiled; compiled.use_cache()\n"
        "from headwater.model.routes import Routes\n"
        "from headwater.model.sites import Link, Site, Sites\n"
        "links = tuple(Link(a, b, 0.001, 1e9) for a, b in ('ab', 'bc', 'ac'))\n"
        "found = Routes(Sites(tuple(map(Site, 'abcz')), links))\n"
        "assert not found.is_tree\n"
        "assert found.between(found.vertex['a'], found.vertex['z']) is None\n"
        "assert len(found.between(found.vertex['a'], found.vertex['c'])) == 1\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")

"""What the controller remembers: all of a change or nothing, after a crash too, and in little room."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.bind.store import Alias, Change, Deployed, Store
from headwater.bind.tokens import Tokens
from headwater.errors import BindError
from headwater.plan.jobs import Held, Job, Topic, held_from, held_object

CODE = "ab" * 32
SPECK_BYTES = 754_000  # what paper 002 measured for as many jobs


def job(number: int = 0, **more: object) -> Job:
    chain = Job(
        f"job-{number:04d}",
        "chain",
        f"edge-{number % 6}",
        (Topic(f"edge-{number % 6}", f"chain-topic-{number:04d}"),),
        Topic(f"edge-{(number + 1) % 6}", f"chain-topic-{number + 1:04d}"),
        CODE,
        "package.jobs:forward",
    )
    return replace(chain, **more)  # type: ignore[arg-type]


def change(*jobs: Job, what: str = "a change", **more: object) -> Change:
    return Change("t1", what, 5.0, {one.name: one for one in jobs}, **more)  # type: ignore[arg-type]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


DEPLOYED = Deployed("{}", CODE, "sites: {}", "auto", 3, None, {"a": "edge-1"})


def test_what_was_changed_is_there_after_the_controller_has_died(file: Path) -> None:
    store = Store(file)
    fragment = job(2, name="p.f", part='{"id": "f"}', sink=None, sources=(), is_stateful=True, is_run=False)
    store.change(change(job(1), fragment, pipelines={"p": DEPLOYED}, forced=["job-0001"]))
    again = Store(file)  # as after kill -9: the first was not closed
    assert again.wanted() == {"job-0001": job(1), "p.f": fragment}
    assert (again.revision, again.forced(), again.pipelines()) == (1, frozenset({"job-0001"}), ("p",))
    assert again.pipeline("p") == DEPLOYED
    assert again.pipeline("q") is None


def test_a_change_is_made_whole_or_not_at_all(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1)))
    broken = replace(job(3), site=None)  # type: ignore[arg-type]
    with pytest.raises(BindError, match="HW4221"):
        store.change(change(job(2), broken, removed=["job-0001"], forced=["job-0002"]))
    for seen in (store, Store(file)):
        assert (seen.wanted(), seen.revision, len(seen.history(9))) == ({"job-0001": job(1)}, 1, 1)
        assert seen.forced() == frozenset()
    store.change(change(job(2)))  # and it goes on
    assert Store(file).revision == 2


def test_removed_jobs_and_pipelines_are_gone(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1), job(2), pipelines={"p": DEPLOYED}))
    store.change(change(removed=["job-0001"], pipelines={"p": None}))
    for seen in (store, Store(file)):
        assert (dict(seen.wanted()), seen.pipelines()) == ({"job-0002": job(2)}, ())


def test_what_was_given_out_does_not_change(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1)))
    before = store.wanted()
    store.change(change(job(2)))
    assert list(before) == ["job-0001"]
    with pytest.raises(TypeError):
        before["x"] = job(3)  # type: ignore[index]


def test_a_forced_job_is_forced_until_it_is_changed_or_arrived(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1), job(2), forced=["job-0001", "job-0002"]))
    store.change(change(job(1)))
    assert store.forced() == Store(file).forced() == {"job-0002"}
    store.unforce(["job-0002", "job-0009"])
    assert store.forced() == Store(file).forced() == frozenset()


def test_a_goal_goes_with_the_last_job_of_its_composition_in_the_same_change(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1), job(2), job(3, composition="town")))
    store.set_goal("chain", ("gold", None))
    store.set_goal("town", (None, 0.2))
    store.set_policy("weighted")
    store.change(change(job(4), removed=["job-0001", "job-0002"]))
    assert set(store.goals()) == set(Store(file).goals()) == {"chain", "town"}, "a job is left of both"
    with pytest.raises(BindError, match="HW4221"):
        store.change(change(replace(job(5), site=None), removed=["job-0004"]))  # type: ignore[arg-type]
    assert set(store.goals()) == set(Store(file).goals()) == {"chain", "town"}, "nothing was changed"
    store.change(change(removed=["job-0004"]))
    for seen in (store, Store(file)):
        assert (dict(seen.goals()), seen.policy()) == ({"town": {"class": None, "p99_s": 0.2}}, "weighted")
    store.change(change(job(3, composition="chain")))  # the last of 'town' goes over to another 'chain'
    for seen in (store, Store(file)):
        assert dict(seen.goals()) == {}


def test_goals_and_policy_are_told_from_memory(file: Path) -> None:
    store = Store(file)
    store.change(change(job(1)))
    store.set_goal("chain", ("gold", None))
    store.set_policy("weighted")
    before = store.goals()
    store.close()  # whoever looks at the file now fails
    assert (dict(store.goals()), store.policy()) == ({"chain": {"class": "gold", "p99_s": None}}, "weighted")
    again = Store(file)
    again.set_goal("chain", ("silver", 0.1))
    again.set_policy(None)
    assert (dict(again.goals()), again.policy()) == ({"chain": {"class": "silver", "p99_s": 0.1}}, None)
    assert again.goals() is again.goals(), "asking costs nothing"
    with pytest.raises(TypeError):
        before["x"] = {}  # type: ignore[index]


def test_history_tells_who_what_when_and_how_it_ended_the_last_first(file: Path) -> None:
    store = Store(file)
    first = store.change(change(job(1), what="job 'A' submitted"))
    store.note("t2", "token 'x' revoked", 6.0, "done")
    store.conclude({first: "done"})
    found = Store(file).history(10)
    assert [(one.who, one.what, one.at_s, one.outcome) for one in found] == [
        ("t2", "token 'x' revoked", 6.0, "done"),
        ("t1", "job 'A' submitted", 5.0, "done"),
    ]
    assert len(store.history(1)) == 1


def test_the_last_upload_of_a_name_counts_and_all_are_known_by_hash(file: Path) -> None:
    store = Store(file)
    assert store.add_upload(Alias("jobs.py", CODE, 10, 1.0))
    assert not store.add_upload(Alias("same.py", CODE, 10, 2.0))
    assert store.add_upload(Alias("jobs.py", "cd" * 32, 20, 3.0))
    assert store.upload("jobs.py") == "cd" * 32
    assert store.upload("same.py") == store.upload(CODE) == CODE
    assert store.upload("ef" * 32) is None
    assert store.upload("no.py") is None
    assert [(one.name, one.size_bytes) for one in store.uploads()] == [("jobs.py", 20), ("same.py", 10)]


def test_what_sites_said_last_is_there_after_a_restart(file: Path) -> None:
    store = Store(file)
    held = (Held("edge-1", job(1), 3, False, "stopped", is_drained=True, positions=(("chain-topic-0001", "7"),)),)
    store.keep_held("edge-1", [held_object(one) for one in held])
    store.keep_held("edge-2", [])
    assert {site: tuple(map(held_from, one)) for site, one in Store(file).held().items()} == {
        "edge-1": held,
        "edge-2": (),
    }
    store.forget_held("edge-1")
    assert set(Store(file).held()) == {"edge-2"}


def test_the_same_said_again_writes_nothing(file: Path) -> None:
    store = Store(file)
    held = [held_object(Held("edge-1", job(number), 1, True, "running")) for number in range(100)]
    store.keep_held("edge-1", held)
    log = file.with_name("store.db-wal")
    before = log.stat().st_size
    store.keep_held("edge-1", [dict(one) for one in held])
    assert log.stat().st_size == before


@pytest.mark.parametrize("are_one_by_one", [False, True])
def test_a_thousand_jobs_take_less_than_half_of_what_the_paper_needs(file: Path, are_one_by_one: bool) -> None:
    store = Store(file)
    jobs = [job(number) for number in range(1000)]
    for some in [[one] for one in jobs] if are_one_by_one else [jobs]:
        store.change(change(*some, what=f"job '{some[0].name}' submitted"))
    for site in range(6):
        mine = [one for one in jobs if one.site == f"edge-{site}"]
        store.keep_held(f"edge-{site}", [held_object(Held(one.site, one, 1, True, "running")) for one in mine])
    store.close()
    size = sum(one.stat().st_size for one in file.parent.iterdir() if one.name.startswith("store.db"))
    assert size < SPECK_BYTES / 2
    assert len(Store(file).wanted()) == 1000


def test_many_threads_change_and_read_at_once_and_nothing_is_lost(file: Path) -> None:
    store = Store(file)
    troubles: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(first, first + 20):
                store.change(change(job(number)))
                assert job(number).name in store.wanted()
                store.history(5)
                store.keep_held(f"edge-{first}", [held_object(Held("edge", job(number), 1, True, "running"))])
        except BaseException as error:  # noqa: BLE001 - told by the test
            troubles.append(error)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(0, 160, 20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert troubles == []
    assert len(store.wanted()) == len(Store(file).wanted()) == store.revision == 160


def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(file: Path) -> None:
    file.write_bytes(b"something else entirely, and rather long" * 100)
    with pytest.raises(BindError, match=r"HW4220 .*store\.db"):
        Store(file)
    assert file.read_bytes().startswith(b"something else")


def test_a_store_of_another_version_is_refused(file: Path) -> None:
    Store(file).close()
    base = sqlite3.connect(file)
    base.execute("UPDATE meta SET value = 2 WHERE key = 'form'")
    base.commit()
    base.close()
    with pytest.raises(BindError, match=r"HW4220 .* form 2, and this version reads form 1"):
        Store(file)


def test_only_its_owner_may_read_the_store(file: Path) -> None:
    before = os.umask(0)
    try:
        Store(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_is_known_again_by_its_hash_alone_also_after_a_restart(file: Path) -> None:
    store = Store(file)
    token_id, text = Tokens(store).issue("agent", "edge-1")
    assert len(text) == 3 + 1 + 43
    assert text.startswith("hw_a")
    caller = Tokens(Store(file)).check(text)
    assert caller is not None
    assert (caller.id, caller.kind, caller.site) == (token_id, "agent", "edge-1")
    store.close()
    assert all(text.encode() not in one.read_bytes() for one in file.parent.iterdir())


@pytest.mark.parametrize("wrong", ["", "hw_a", "x" * 10_000, "hw_a\udcff", "hw_a" + "A" * 43])
def test_what_is_no_token_is_nobodys(file: Path, wrong: str) -> None:
    tokens = Tokens(Store(file))
    tokens.issue("operator")
    assert tokens.check(wrong) is None


def test_a_revoked_token_counts_no_more_and_the_others_do(file: Path) -> None:
    tokens = Tokens(Store(file))
    first, text = tokens.issue("agent", "edge-1")
    _, other = tokens.issue("agent", "edge-1")
    revoked = tokens.revoke(first)
    assert revoked is not None
    assert revoked.site == "edge-1"
    assert tokens.check(text) is None
    assert tokens.check(other) is not None
    assert tokens.has_agent("edge-1")
    assert tokens.revoke(first) is None
    assert Tokens(Store(file)).check(text) is None


def test_the_operators_token_is_made_once_in_a_file_that_only_its_owner_reads(file: Path) -> None:
    tokens, kept = Tokens(Store(file)), file.with_name("operator.token")
    text = tokens.ensure_operator(kept)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    again = Tokens(Store(file))
    assert again.ensure_operator(kept) == text
    assert len(again.all()) == 1
    caller = again.check(text)
    assert caller is not None
    assert caller.kind == "operator"


def test_a_revoked_operators_token_is_replaced_at_the_next_start(file: Path) -> None:
    tokens, kept = Tokens(Store(file)), file.with_name("operator.token")
    text = tokens.ensure_operator(kept)
    tokens.revoke(tokens.all()[0].id)
    again = Tokens(Store(file))
    assert again.ensure_operator(kept) != text
    assert again.check(text) is None


def test_a_file_that_holds_no_token_is_refused(file: Path) -> None:
    kept = file.with_name("operator.token")
    kept.write_text("hello\n")
    with pytest.raises(BindError, match="HW4222"):
        Tokens(Store(file)).ensure_operator(kept)

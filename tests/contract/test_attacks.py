"""What somebody who means harm can do: nothing, while others are served as before, and no log tells a secret."""

from __future__ import annotations

import io
import json
import logging
import socket
import statistics
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.bind.uploads import LARGEST_BYTES
from headwater.serve.api_guard import most_bytes
from tests.contract.controlled import CODE, WAIT, WAIT_S, Controlled, composition, form, running

TEN_GB = 10_000_000_000
SESSION = {"session": "ab" * 16, "broker": "127.0.0.1:9092", "held": []}


@pytest.fixture
def it(tmp_path: Path) -> Iterator[Controlled]:
    with running(tmp_path) as found:
        yield found


def stored(it: Controlled) -> int:
    return sum(one.stat().st_size for one in (it.folder / "uploads").iterdir())


def raw(it: Controlled, head: str, body: Iterator[bytes]) -> tuple[int, int]:
    """Send bytes as they are until the other side has had enough; return its answer's status and what was sent."""
    sent = 0
    with socket.create_connection(("127.0.0.1", it.port), timeout=WAIT_S) as line:
        line.sendall(head.replace("\n", "\r\n").encode())
        try:
            for chunk in body:
                line.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass  # it was cut off
        answer = b""
        try:
            while chunk := line.recv(65536):
                answer += chunk
        except OSError:
            pass
    return int(answer.split()[1]) if answer else 0, sent


def chunked() -> Iterator[bytes]:
    piece = b"#" * 2**20
    frame = f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    for _ in range(TEN_GB // len(piece)):
        yield frame


def plain() -> Iterator[bytes]:
    for _ in range(TEN_GB // 2**20):
        yield b"#" * 2**20


def test_ten_gigabytes_that_are_announced_are_refused_before_they_come(it: Controlled) -> None:
    before = stored(it)
    head = f"PUT /uploads/x.py HTTP/1.1\nHost: x\nAuthorization: Bearer {it.token}\nContent-Length: {TEN_GB}\n\n"
    status, sent = raw(it, head, plain())
    assert status in {413, 0}  # a line that is cut while we send may lose the answer
    assert sent < 50 * 2**20
    assert stored(it) == before
    assert raw(it, head, iter(())) == (413, 0), "it needs none of it to know"
    it.call("GET", "/health", 200)


def test_ten_gigabytes_that_nobody_announced_are_cut_off_at_the_bound(it: Controlled) -> None:
    before = stored(it)
    head = f"PUT /uploads/x.py HTTP/1.1\nHost: x\nAuthorization: Bearer {it.token}\nTransfer-Encoding: chunked\n\n"
    status, sent = raw(it, head, chunked())
    assert status in {413, 0}
    assert LARGEST_BYTES - 2**20 < sent < LARGEST_BYTES + 50 * 2**20
    assert stored(it) == before
    assert list((it.folder / "uploads").glob(".part-*")) == []
    it.call("GET", "/health", 200)


@pytest.mark.parametrize("path", ["/jobs", "/compositions/x", "/pipelines/x", "/tokens", "/jobs/A/move", "/nowhere"])
def test_every_body_is_bounded_by_its_length_and_by_counting(it: Controlled, path: str) -> None:
    most = most_bytes(path)
    method = "PUT" if path.count("/") == 2 else "POST"

    def endless() -> Iterator[bytes]:
        for _ in range(most // 2**16 + 2):
            yield b"{" * 2**16

    answer = it.client.request(method, path, content=b"x" * (most + 1), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    try:
        answer = it.client.request(method, path, content=endless(), headers={"Content-Type": "application/json"})
        assert answer.status_code in {413, 404, 405}
    except httpx.TransportError:
        pass  # cut off while we were sending
    it.call("GET", "/health", 200)


def test_without_a_token_not_one_byte_of_a_body_is_taken(it: Controlled) -> None:
    for more, body in ((f"Content-Length: {TEN_GB}", plain()), ("Transfer-Encoding: chunked", chunked())):
        status, sent = raw(it, f"PUT /uploads/x.py HTTP/1.1\nHost: x\n{more}\n\n", body)
        assert status in {401, 0}
        assert sent < 50 * 2**20


def test_a_zip_that_leaves_its_folder_is_refused(it: Controlled) -> None:
    for name in ("../../operator.token", "/etc/passwd", "a/../../x.py", "..\\x.py"):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("good.py", CODE)
            archive.writestr(name, b"evil")
        error = it.call("PUT", "/uploads/x.zip", 422, content=packed.getvalue())["error"]
        assert error["code"] == "HW1222"
    assert (it.folder / "operator.token").read_text().strip() == it.token
    assert [one["name"] for one in it.call("GET", "/uploads", 200)["uploads"]] == ["jobs.py"]


def test_a_bomb_is_refused(it: Controlled) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(200 * 2**20))
    assert it.call("PUT", "/uploads/x.zip", 422, content=packed.getvalue())["error"]["code"] == "HW1222"


EVIL_NAMES = [
    "../../etc/passwd",
    "..",
    ".",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "-rf",
    ".hidden",
    "x" * 121,
    "é",
    "a b",
    "%2e%2e",
]


@pytest.mark.parametrize("name", EVIL_NAMES)
def test_a_path_in_a_name_is_refused_everywhere(it: Controlled, name: str) -> None:
    assert it.call("POST", "/jobs", 422, json=form(name))["error"]["code"] == "HW1530"
    text = composition(form("A")).replace("job_name: A", f"job_name: {json.dumps(name)}")
    assert it.client.put("/compositions/city", content=text.encode()).status_code == 422
    quoted = "".join(f"%{byte:02x}" for byte in name.encode())
    for method, path in (("PUT", "compositions"), ("PUT", "pipelines"), ("PUT", "uploads"), ("GET", "jobs")):
        answer = it.client.request(method, f"/{path}/{quoted}", content=CODE)
        assert answer.status_code in {404, 405, 422}, (path, answer.text)
    assert it.call("POST", "/tokens", 422, json={"site": name})["error"]["code"] == "HW1811"
    assert it.store.revision == 0
    assert {one.name for one in it.folder.iterdir()} <= {
        "store.db", "store.db-wal", "store.db-shm", "uploads", "spool", "operator.token",
    }  # fmt: skip


def test_a_token_of_another_site_opens_nothing(it: Controlled) -> None:
    token = it.agent_token("edge-2")
    with it.client_of(token) as agent:
        for path in ("/agents/edge-1/hello", "/agents/edge-1/report", "/agents/edge-1/answers", "/agents//hello"):
            assert agent.post(path, json=SESSION).status_code == 403
        sneaky = "/agents/edge-2/../edge-1/hello", "/agents/edge-2%2f..%2fedge-1/hello", "//agents/edge-2/hello"
        for path in sneaky:
            assert raw_status(it, "POST", path, token) in {403, 404}
        for method, path in (("GET", "/jobs"), ("GET", "/openapi.json"), ("POST", "/tokens"), ("PUT", "/uploads/x.py")):
            assert agent.request(method, path, content=CODE).status_code == 403
        assert agent.post("/agents/edge-2/hello", json=SESSION).status_code == 200
    assert it.call("POST", "/agents/edge-1/hello", 403, json=SESSION)["error"]["code"] == "HW1821"
    assert {one.site for one in it.desk.sites()} == {"edge-2"}


def raw_status(it: Controlled, method: str, path: str, token: str) -> int:
    body = json.dumps(SESSION)
    head = f"{method} {path} HTTP/1.1\nHost: x\nAuthorization: Bearer {token}\nConnection: close\n"
    head += f"Content-Type: application/json\nContent-Length: {len(body)}\n\n"
    return raw(it, head, iter([body.encode()]))[0]


def test_a_replayed_request_of_an_agent_is_refused_and_harmless(it: Controlled) -> None:
    with it.client_of(it.agent_token("edge-1")) as agent:
        first, second = {**SESSION, "instance": "cd" * 16}, {**SESSION, "session": "ef" * 16, "instance": "cd" * 16}
        assert agent.post("/agents/edge-1/hello", json=first).status_code == 200
        report = {"session": first["session"], "number": 1, "held": [], "told": {}}
        assert agent.post("/agents/edge-1/report", json=report).status_code == 200
        assert agent.post("/agents/edge-1/report", json=report).status_code == 409
        assert agent.post("/agents/edge-1/hello", json=second).status_code == 200
        for path, body in (("hello", first), ("report", {**report, "number": 2})):
            assert agent.post(f"/agents/edge-1/{path}", json=body).status_code == 409
        answer = {"session": second["session"], "id": 1, "ok": True, "error": None, "result": {}}
        assert agent.post("/agents/edge-1/answers", json=answer).status_code == 409


def test_a_revoked_token_is_refused_from_that_moment_on(it: Controlled) -> None:
    made = it.call("POST", "/tokens", 201, json={"site": "edge-1"})
    with it.client_of(made["token"]) as agent:
        assert agent.post("/agents/edge-1/hello", json=SESSION).status_code == 200
        it.call("DELETE", f"/tokens/{made['id']}", 200)
        assert agent.post("/agents/edge-1/report", json=SESSION).status_code == 401


def test_a_thousand_wrong_tokens_slow_nobody_down(it: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    alone = [asked_s(it) for _ in range(30)]
    statuses: list[int] = []

    def guess(number: int) -> None:
        with it.client_of(None) as stranger:
            for one in range(250):
                header = {"Authorization": f"Bearer hw_o{number:03d}{one:040d}"}
                statuses.append(stranger.get("/health", headers=header).status_code)

    guessers = [threading.Thread(target=guess, args=(number,)) for number in range(4)]
    for one in guessers:
        one.start()
    beside = []
    while any(one.is_alive() for one in guessers):
        beside.append(asked_s(it))
    for one in guessers:
        one.join()
    assert statuses == [401] * 1000
    after = [asked_s(it) for _ in range(30)]
    assert len(beside) >= 10, "the good client was served all the while"
    assert statistics.median(beside) < 0.5
    assert statistics.median(after) < 5 * statistics.median(alone) + 0.05
    told = [one for one in caplog.records if "without a token that counts" in one.getMessage()]
    assert 1 <= len(told) <= 5, "a thousand lines would fill the disk"


def asked_s(it: Controlled) -> float:
    begun_s = time.perf_counter()
    assert it.client.get("/health").status_code == 200
    return time.perf_counter() - begun_s


def test_no_secret_is_in_any_log_answer_or_file(
    it: Controlled, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    agent_token = it.agent_token("edge-1")
    wrong = "hw_o" + "Z" * 43
    seen = []
    for token in (it.token, agent_token, wrong):
        with it.client_of(token) as client:
            for method, path in (
                ("GET", "/jobs"),
                ("GET", "/tokens"),
                ("GET", "/history"),
                ("GET", "/status"),
                ("GET", "/openapi.json"),
                ("GET", "/nowhere"),
                ("PUT", "/compositions/x"),
                ("POST", "/agents/edge-1/hello"),
                ("POST", "/agents/edge-2/hello"),
            ):
                seen.append(client.request(method, path, content=b"{").text)
    it.call("POST", "/jobs", 201, json=form(), params=WAIT)
    it.restart()
    out, err = capfd.readouterr()
    logged = "\n".join(one.getMessage() + str(one.exc_text or "") for one in caplog.records) + out + err
    kept = b"".join(one.read_bytes() for one in it.folder.rglob("*") if one.is_file() and one.name != "operator.token")
    assert it.tokens.all()[0].id in logged, "who asked is told by the token's id"
    for secret in (it.token, agent_token, wrong):
        assert secret not in logged
        assert secret not in "".join(seen)
        assert secret.encode() not in kept


def test_a_path_cannot_write_lines_of_its_own_into_the_log(it: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    it.client.delete("/jobs/a%0aWARNING%20all%20is%20lost")
    it.client_of(None).get("/x%0d%0aWARNING%20all%20is%20lost")
    assert caplog.records
    assert all("\n" not in one.getMessage() and "\r" not in one.getMessage() for one in caplog.records)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 500_000,
        b'{"a":' * 100_000,
        b"\xff\xfe\x00",
        b'{"site": "\\ud800"}',
        b'{"site": 1e999}',
        b'{"site": ' + b"9" * 100_000 + b"}",
        b"NaN",
        b"",
        b"null",
    ],
)
def test_strange_json_is_refused_and_not_a_fault(it: Controlled, body: bytes) -> None:
    for method, path in (("POST", "/tokens"), ("POST", "/jobs"), ("PUT", "/pipelines/x"), ("PUT", "/compositions/x")):
        answer = it.client.request(method, path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code in {400, 422}, (path, answer.text[:200])
        assert answer.json()["error"]["code"].startswith("HW1")

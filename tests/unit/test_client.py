"""Does a command find the controller, keep its token to itself, and say what is wrong in its own words?"""

from __future__ import annotations

import json
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headwater.bind.certificates import Certificate, issue, make_ca
from headwater.errors import BindError, BrokenInvariant, HeadwaterError, PlanError, SpecError
from headwater.serve.client import Client, Place, find
from headwater.serve.line import Line
from tests.recorded import TOKEN, Asked, recorded

VARIABLES = ("CONTROLLER", "STATE", "TOKEN", "TOKEN_FILE", "CA")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch) -> Path:
    for name in VARIABLES:
        monkeypatch.delenv(f"HEADWATER_{name}", raising=False)
    folder = tmp_path / "state"
    monkeypatch.setenv("HEADWATER_STATE", str(folder))
    return folder


def asked(place: Place) -> object:
    with Client(place) as client:
        return client.get("/health")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_usual_state_folder_tells_where_the_controller_is(state: Path) -> None:
    with recorded(state, {"GET /health": {"ok": True}}) as controller:
        assert find().url == controller.url
        assert asked(find()) == {"ok": True}


def test_a_named_state_folder_comes_before_the_environment(state: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HEADWATER_CONTROLLER", "http://127.0.0.1:1")
    with recorded(tmp_path / "other", {"GET /health": {"ok": True}}) as controller:
        assert find(state=str(tmp_path / "other")).url == controller.url
        assert find(controller.url, str(state.parent / "other")).token == TOKEN
        monkeypatch.setenv("HEADWATER_TOKEN", TOKEN)
        assert find().url == "http://127.0.0.1:1"


def test_nobody_there_is_said_with_what_to_do(state: Path) -> None:
    with pytest.raises(BindError, match=r"HW4920 no controller is known: .*Is 'headwater up'"):
        find()
    place = Place(f"http://127.0.0.1:{free_port()}", TOKEN, "a test", None)
    with pytest.raises(BindError, match=r"HW4920 nobody answers at http://127.0.0.1:\d+: .*Is 'headwater up'"):
        asked(place)


def test_the_token_comes_from_the_environment_a_file_or_the_state_folder(state: Path, tmp_path: Path, monkeypatch):
    with recorded(state, {}):
        assert find().token_from.endswith("operator.token'")
        (tmp_path / "token").write_text("hw_ofile\n")
        monkeypatch.setenv("HEADWATER_TOKEN_FILE", str(tmp_path / "token"))
        assert find().token == "hw_ofile"
        monkeypatch.setenv("HEADWATER_TOKEN", " hw_oword\n")
        assert find().token == "hw_oword"
        assert "hw_oword" not in repr(find())
        monkeypatch.setenv("HEADWATER_TOKEN", "two words")
        with pytest.raises(BindError, match=r"HW4923 what HEADWATER_TOKEN holds is no token") as caught:
            find()
        assert "two words" not in str(caught.value)


def test_the_token_of_the_state_folder_goes_to_no_other_machine(state: Path, tmp_path: Path, monkeypatch) -> None:
    state.mkdir()
    (state / "operator.token").write_text(TOKEN)
    with pytest.raises(BindError, match=r"HW4923 there is no token for https://elsewhere.example"):
        find("https://elsewhere.example")
    monkeypatch.setenv("HEADWATER_CONTROLLER", "https://elsewhere.example")
    with pytest.raises(BindError, match="HW4923"):
        find()
    assert find("https://elsewhere.example", str(state)).token == TOKEN  # who names both means it
    assert find("http://127.0.0.1:1").token == TOKEN


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://control.example:8470", "would travel to 'control.example' in clear"),
        ("control.example", "is no address of a controller"),
        ("ftp://control.example", "is no address of a controller"),
        ("https://host:99999", "is no address of a controller"),
        ("https://me:secret@control.example", "holds no name or password"),
    ],
)
def test_an_address_that_cannot_be_trusted_is_refused_before_anything_is_sent(url: str, text: str, monkeypatch) -> None:
    monkeypatch.setenv("HEADWATER_TOKEN", TOKEN)
    with pytest.raises(SpecError, match=f"HW1330 .*{text}"):
        find(url)


def test_a_refused_token_is_named_by_where_it_came_from(state: Path, monkeypatch) -> None:
    with recorded(state, {}) as controller:
        monkeypatch.setenv("HEADWATER_TOKEN", "hw_owrong")
        with pytest.raises(
            BindError, match=f"HW4922 .*{controller.url} refuses the token from HEADWATER_TOKEN"
        ) as caught:
            asked(find())
        assert "hw_owrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (422, "HW1535", SpecError),
        (404, "HW1830", SpecError),
        (409, "HW2201", PlanError),
        (503, "HW4931", BindError),
        (500, "HW9502", BrokenInvariant),
    ],
)
def test_what_the_controller_refuses_is_raised_as_there(state, status: int, code: str, kind: type) -> None:
    error: dict[str, object] = {"code": code, "text": f"{code} it will not do", "mistakes": []}
    if kind is SpecError:
        error["mistakes"] = [{"code": code, "text": "it will not do", "file": "town.yaml", "line": 3}]
    with recorded(state, {"GET /health": (status, {"error": error})}), pytest.raises(HeadwaterError) as caught:
        asked(find())
    assert type(caught.value) is kind
    where = " town.yaml:3:" if kind is SpecError else ""
    assert str(caught.value) == f"{code}{where} it will not do"


def test_an_answer_that_is_no_controllers_is_told_as_such(state: Path) -> None:
    for answer in [(200, b"<html>hello</html>"), (502, b"bad gateway"), (418, {"tea": True})]:
        with recorded(state, {"GET /health": answer}), pytest.raises(BindError, match=r"HW4924 .*is no controller"):
            asked(find())


def test_questions_take_names_with_any_character_and_words_for_yes(state: Path) -> None:
    with recorded(state, {"PUT /jobs/a b/ü": {}}) as controller:
        with Client(find()) as client:
            client.put("/jobs/a%20b/%C3%BC", {"n": 1}, dry_run=True, basis=None, wait_s=0.5)
        assert controller.asked == [Asked("PUT", "/jobs/a b/ü", {"dry_run": "true", "wait_s": "0.5"}, b'{"n": 1}')]


def test_a_wait_is_given_its_time_and_an_answer_that_never_comes_is_not(state: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        place = Place(f"http://127.0.0.1:{silent.getsockname()[1]}", TOKEN, "a test", None)
        with Client(place, answer_s=0.05) as client, pytest.raises(BindError, match=r"HW4925 .*took too long .*status"):
            client.post("/jobs/a/move", {})
        with Client(place, answer_s=0.05) as client, pytest.raises(BindError, match="HW4925") as caught:
            client.get("/jobs")
        assert "not known" not in str(caught.value)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, Certificate]]:
    """A server with a certificate of an authority that nobody knows."""
    made = issue(tmp_path / "tls", "controller", ["127.0.0.1"])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *values: object) -> None:
            del format, values

    class Quiet(HTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            del request, client_address

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://127.0.0.1:{server.server_port}", made
    server.shutdown()
    server.server_close()
    thread.join()


def test_tls_is_checked_against_the_authority_that_was_named(secure, state: Path, tmp_path: Path, monkeypatch) -> None:
    url, made = secure
    monkeypatch.setenv("HEADWATER_TOKEN", TOKEN)
    with pytest.raises(BindError, match=r"HW4921 no trusted connection .*what this system trusts.*HEADWATER_CA"):
        asked(find(url))
    monkeypatch.setenv("HEADWATER_CA", str(made.ca))
    assert asked(find(url)) == {}
    monkeypatch.setenv("HEADWATER_CA", str(make_ca(tmp_path / "another").certificate))
    with pytest.raises(BindError, match=r"HW4921 .*another"):
        asked(find(url))
    monkeypatch.setenv("HEADWATER_CA", str(tmp_path / "missing.pem"))
    with pytest.raises(BindError, match=r"HW4921 the authority's certificate .*missing.pem' cannot be read"):
        asked(find(url))


def test_the_authority_of_the_state_folder_is_taken_by_itself(secure, state: Path, monkeypatch) -> None:
    url, made = secure
    monkeypatch.setenv("HEADWATER_TOKEN", TOKEN)
    state.mkdir()
    (state / "ca.pem").write_bytes(made.ca.read_bytes())
    assert asked(find(url)) == {}


def test_the_authority_that_a_controller_names_beside_its_address_is_taken_by_itself(secure, state: Path) -> None:
    url, made = secure
    state.mkdir(exist_ok=True)
    (state / "controller.json").write_text(json.dumps({"url": url, "pid": os.getpid(), "ca": str(made.ca)}), "utf-8")
    (state / "operator.token").write_text(TOKEN, "utf-8")
    assert asked(find()) == {}


def test_plain_words_to_a_controller_with_tls_are_explained(secure) -> None:
    url, _ = secure
    place = Place(url.replace("https", "http"), TOKEN, "a test", None)
    with pytest.raises(BindError, match=r"HW4925 .*its address begins with https"):
        asked(place)


@pytest.mark.parametrize("url", ["", "hub:8000", "http://", "http://a:b", "http://[::1", "ftp://hub:21", "http://a:0"])
def test_an_agent_is_told_at_once_that_an_address_is_none(url: str, tmp_path: Path) -> None:
    with pytest.raises(BindError, match="HW4916"):
        Line(url, "hub", lambda: "token", tmp_path)

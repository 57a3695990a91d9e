"""Who may talk to a runner, and what happens when somebody does not keep to the rules."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

import pytest

from headwater.bind import talk
from headwater.bind.talk import Caller, Server, make_token
from headwater.errors import BindError

TOKEN = b"a" * 64
SOON_S = 5.0  # far above what an answer takes, far below what a stranger is given


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    if request["do"] == "wait":
        time.sleep(request["seconds"])
    return {"ok": True, "got": request}


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(TOKEN, answer)
    threading.Thread(target=made.serve, daemon=True).start()
    yield made
    made.close()


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    made = Caller(server.port, TOKEN)
    yield made
    made.close()


def assert_answers(server: Server) -> None:
    """A caller that knows the token is answered at once."""
    begin_s = time.monotonic()
    caller = Caller(server.port, TOKEN)
    assert caller.ask({"do": "x"}, SOON_S) == {"ok": True, "got": {"do": "x"}}
    caller.close()
    assert time.monotonic() - begin_s < SOON_S


def test_requests_are_answered_one_after_the_other(caller: Caller) -> None:
    for number in range(20):
        assert caller.ask({"do": "x", "number": number, "text": "ü\n"}, SOON_S)["got"]["number"] == number


def test_two_callers_do_not_wait_for_each_other(server: Server, caller: Caller) -> None:
    slow = threading.Thread(target=lambda: caller.ask({"do": "wait", "seconds": 1.0}, SOON_S))
    slow.start()
    begin_s = time.monotonic()
    assert_answers(server)
    assert time.monotonic() - begin_s < 0.9
    slow.join()


def test_a_wrong_token_is_refused_and_the_server_goes_on(server: Server) -> None:
    for wrong in (b"b" * 64, b"", TOKEN[:-1]):
        with pytest.raises(BindError, match=rf"HW4501 the runner on port {server.port}"):
            Caller(server.port, wrong)
    assert_answers(server)


def test_a_caller_does_not_believe_a_server_that_does_not_know_the_token() -> None:
    """Whoever has taken the port of a runner that died says that any answer was right."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pretend() -> None:
            peer, _ = listener.accept()
            with peer:
                for message in (b"#CHALLENGE#" + b"x" * 20, b"#WELCOME#", b"y" * 16):
                    peer.sendall(struct.pack("!i", len(message)) + message)
                peer.recv(1000)
                time.sleep(0.2)

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(BindError, match="HW4501"):
            Caller(listener.getsockname()[1], TOKEN)


def test_strangers_that_say_nothing_keep_nobody_waiting(server: Server) -> None:
    strangers = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(70)]
    try:
        assert_answers(server)
    finally:
        for each in strangers:
            each.close()


@pytest.mark.parametrize(
    "rubbish",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!i", 10) + b"short",
        struct.pack("!i", 0x7FFFFFFF),
        struct.pack("!i", -1) + struct.pack("!Q", 1 << 62),
        struct.pack("!i", -5),
        os.urandom(4096),
    ],
    ids=["http", "half a message", "huge", "huger", "negative", "random"],
)
def test_a_stranger_that_sends_rubbish_keeps_nobody_waiting(server: Server, rubbish: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(rubbish)
        assert_answers(server)
    assert_answers(server)


def test_a_stranger_is_sent_away_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "PROOF_S", 0.2)
    server = Server(TOKEN, answer)
    threading.Thread(target=server.serve, daemon=True).start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=SOON_S) as stranger:
        while stranger.recv(1000):
            pass
    server.close()


def test_a_friend_that_is_silent_is_not_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "PROOF_S", 0.2)
    server = Server(TOKEN, answer)
    threading.Thread(target=server.serve, daemon=True).start()
    caller = Caller(server.port, TOKEN)
    time.sleep(0.6)
    assert caller.ask({"do": "x"}, SOON_S)["ok"]
    caller.close()
    server.close()


class Late(socket.socket):
    """A listener in whose accept something comes between the number of the file and the system's call."""

    begun, goes_on = threading.Event(), threading.Event()

    def accept(self) -> tuple[socket.socket, object]:
        number = self.fileno()
        self.begun.set()
        self.goes_on.wait(SOON_S)
        same = socket.socket(fileno=number)
        try:
            return same.accept()
        finally:
            same.detach()


def test_a_server_that_is_closed_takes_no_callers_of_what_is_opened_next(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = socket.create_server
    with contextlib.ExitStack() as fillers:
        for _ in range(100):  # so that the listener's number is the next free one once it is closed
            fillers.enter_context(open(os.devnull))
        with monkeypatch.context() as late:
            late.setattr(socket, "create_server", lambda place, backlog: Late(fileno=opens(place).detach()))
            server = Server(TOKEN, answer)
        threads = [threading.Thread(target=one, daemon=True) for one in (server.serve, server.close)]
        threads[0].start()
        assert Late.begun.wait(SOON_S)
        threads[1].start()
        threads[1].join(0.3)  # it may have to wait for the other
        with opens(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
            Late.goes_on.set()
            for one in threads:
                one.join(SOON_S)
                assert not one.is_alive()
            listener.settimeout(SOON_S)
            listener.accept()[0].close()


def test_a_port_where_somebody_else_is_silent_is_told_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "PROOF_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        begin_s = time.monotonic()
        with pytest.raises(BindError, match=rf"HW4501 the runner on port {port} does not answer: it said nothing"):
            Caller(port, TOKEN)
        assert time.monotonic() - begin_s < SOON_S


def test_a_port_where_nobody_is_or_somebody_talks_rubbish_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def talk_rubbish() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(struct.pack("!i", 5) + b"hello")

        threading.Thread(target=talk_rubbish, daemon=True).start()
        with pytest.raises(BindError, match=rf"HW4501 the runner on port {port}"):
            Caller(port, TOKEN)
    with pytest.raises(BindError, match=rf"HW4501 the runner on port {port}"):
        Caller(port, TOKEN)


def test_a_message_that_is_too_large_ends_only_its_own_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(talk, "LARGEST", 10_000)
    caller = Caller(server.port, TOKEN)
    with pytest.raises(BindError, match="HW4503 the runner is gone"):
        caller.ask({"do": "x", "text": "x" * 20_000}, SOON_S)
    assert_answers(server)


def test_what_is_no_json_ends_only_its_own_connection(server: Server) -> None:
    with Client(("127.0.0.1", server.port), authkey=TOKEN) as friend:
        friend.send_bytes(b"\xff{")
        with pytest.raises((EOFError, OSError)):
            friend.recv_bytes()
    assert_answers(server)


def test_nothing_that_comes_is_unpickled(server: Server, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    with Client(("127.0.0.1", server.port), authkey=TOKEN) as friend:
        friend.send(Trap())
        with pytest.raises((EOFError, OSError)):
            friend.recv_bytes()
    assert not (tmp_path / "sprung").exists()


def test_a_late_answer_is_never_taken_for_that_to_the_next_request(caller: Caller) -> None:
    with pytest.raises(BindError, match=r"HW4502 the runner did not answer 'wait' within 0.1 s"):
        caller.ask({"do": "wait", "seconds": 0.3}, 0.1)
    time.sleep(0.5)
    with pytest.raises(BindError, match="HW4503"):
        caller.ask({"do": "x"}, SOON_S)


@contextlib.contextmanager
def odd_runner(say: Callable[[Connection], None]) -> Iterator[Caller]:
    """Yield a caller of one that knows the token, and answers the first request in a way of its own."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with Connection(peer.detach()) as connection, contextlib.suppress(OSError):
                deliver_challenge(connection, TOKEN)
                answer_challenge(connection, TOKEN)
                connection.recv_bytes()
                say(connection)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        caller = Caller(listener.getsockname()[1], TOKEN)
        yield caller
        caller.close()
        serving.join(SOON_S)


def test_half_an_answer_is_not_waited_for_for_ever() -> None:
    over = threading.Event()

    def stall(connection: Connection) -> None:
        os.write(connection.fileno(), struct.pack("!i", 1000) + b"{")
        over.wait(SOON_S)

    with odd_runner(stall) as caller:
        begin_s = time.monotonic()
        with pytest.raises(BindError, match="HW4502"):
            caller.ask({"do": "x"}, 0.3)
        assert time.monotonic() - begin_s < 1.9
        over.set()


def test_an_answer_that_comes_a_byte_at_a_time_is_not_waited_for_longer_than_any_other() -> None:
    over = threading.Event()

    def trickle(connection: Connection) -> None:
        os.write(connection.fileno(), struct.pack("!i", 10**6))
        end_s = time.monotonic() + SOON_S
        while time.monotonic() < end_s and not over.wait(0.02):
            os.write(connection.fileno(), b" ")

    with odd_runner(trickle) as caller:
        begin_s = time.monotonic()
        with pytest.raises(BindError, match=r"HW4502 the runner did not answer 'x' within 0\.3 s"):
            caller.ask({"do": "x"}, 0.3)
        assert time.monotonic() - begin_s < 1.9
        over.set()


@pytest.mark.parametrize("size", [-1, 2**31 - 1], ids=["in the long form", "in the short one"])
def test_an_answer_of_a_size_that_nobody_reads_is_told_at_once(size: int) -> None:
    def boast(connection: Connection) -> None:
        os.write(connection.fileno(), struct.pack("!iQ", size, 2**40))

    with odd_runner(boast) as caller, pytest.raises(BindError, match="HW4503 the runner is gone: its answer is too"):
        caller.ask({"do": "x"}, SOON_S)


def test_an_answer_about_its_parts_may_not_be_large_and_others_may() -> None:
    server = Server(TOKEN, lambda request: {"parts": "x" * int(request["size"])})
    threading.Thread(target=server.serve, daemon=True).start()
    for do, size, is_read in (("status", 10**6, True), ("status", 3 * 10**6, False), ("halt", 3 * 10**6, True)):
        caller = Caller(server.port, TOKEN)
        if is_read:
            assert len(caller.ask({"do": do, "size": size}, SOON_S)["parts"]) == size
        else:
            with pytest.raises(BindError, match="HW4503 the runner is gone: its answer is too large"):
                caller.ask({"do": do, "size": size}, SOON_S)
            with pytest.raises(BindError, match="HW4503"):
                caller.ask({"do": "x", "size": 1}, SOON_S)  # the rest of it is not taken for that to the next one
        caller.close()
    server.close()


def test_a_runner_that_goes_while_it_is_asked_is_told() -> None:
    hung_up = Server(TOKEN, lambda _: (_ for _ in ()).throw(OSError("gone")))
    threading.Thread(target=hung_up.serve, daemon=True).start()
    with pytest.raises(BindError, match="HW4503 the runner is gone"):
        Caller(hung_up.port, TOKEN).ask({"do": "x"}, SOON_S)
    hung_up.close()


@pytest.mark.parametrize("odd", ["[]", "7", "null", '"x"', "[" * 50_000], ids=lambda odd: odd[:5])
def test_what_is_no_answer_is_told(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    say = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value: odd if value == {"is": "odd"} else say(value))
    server = Server(TOKEN, lambda _: {"is": "odd"})
    threading.Thread(target=server.serve, daemon=True).start()
    with pytest.raises(BindError, match="HW4503 the runner is gone"):
        Caller(server.port, TOKEN).ask({"do": "x"}, SOON_S)
    server.close()


def test_only_this_user_can_read_a_token_and_no_two_are_the_same(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from a run before, for all to read")
    file.chmod(0o644)
    before = os.umask(0)
    try:
        first = make_token(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_bytes() == first
    assert len(first) >= 32
    assert make_token(file) != first


def test_a_token_is_not_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_text("kept")
    (tmp_path / "token").symlink_to(target)
    make_token(tmp_path / "token")
    assert target.read_text() == "kept"


def test_the_standard_librarys_own_client_is_let_in_with_the_token_only(server: Server) -> None:
    with pytest.raises((AuthenticationError, EOFError, OSError)):
        Client(("127.0.0.1", server.port), authkey=b"wrong")
    with Client(("127.0.0.1", server.port), authkey=TOKEN) as friend:
        friend.send_bytes(b'{"do": "x"}')
        assert friend.recv_bytes() == b'{"ok": true, "got": {"do": "x"}}'

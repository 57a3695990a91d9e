"""Who reaches a broker with what, and who can read it."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.bind import keyring
from headwater.bind.broker_files import Access, broker_files, is_loopback
from headwater.bind.keyring import Credentials, broker_password, find, jaas, spark_options, use, write
from headwater.bind.topics import client_settings
from headwater.errors import BindError

ONE = Credentials("headwater", "pass-one", "ca.pem")
OTHER = Credentials("headwater", "pass-other", "ca.pem")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The keyring of this process, not written yet, where its authority is."""
    monkeypatch.chdir(tmp_path)
    Path("ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    use(tmp_path / "keyring.json")
    yield tmp_path / "keyring.json"
    use(None)


def test_an_address_that_is_not_there_is_reached_without_a_password(file: Path) -> None:
    assert find("a:1") is None
    write(file, {"a:1": ONE})
    assert find("b:1") is None
    assert spark_options("b:1") == {}
    assert not [key for key in client_settings("b:1") if "sasl" in key or "ssl" in key]
    use(None)
    assert find("a:1") is None


def test_librdkafka_and_spark_get_what_the_broker_asks_for(file: Path) -> None:
    write(file, {"a:1": ONE, "b:2": OTHER})
    settings = client_settings("a:1")
    assert settings["bootstrap.servers"] == "a:1"
    assert {key: settings[key] for key in settings if key.startswith(("s",))} == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "headwater",
        "sasl.password": "pass-one",
        "ssl.ca.location": "ca.pem",
    }
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    assert spark_options("b:2") == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="headwater" password="pass-other";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "ca.pem",
    }
    assert find("c:3, b:2") == OTHER


def test_a_keyring_that_changes_is_read_again(file: Path) -> None:
    write(file, {"a:1": ONE})
    assert find("a:1") == ONE
    write(file, {"a:1": OTHER, "b:2": ONE})
    assert (find("a:1"), find("b:2")) == (OTHER, ONE)
    file.unlink()
    assert find("a:1") is None
    write(file, {"a:1": ONE})
    assert find("a:1") == ONE


def test_a_keyring_is_written_for_its_owner_alone(file: Path) -> None:
    before = os.umask(0)
    try:
        write(file, {"a:1": ONE}, uid=os.geteuid())
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in file.parent.iterdir()} == {file.name, "ca.pem"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_keyring_that_others_can_use_is_refused(file: Path, mode: int) -> None:
    write(file, {"a:1": ONE})
    file.chmod(mode)
    with pytest.raises(BindError, match=r"HW4209.*chmod 600"):
        find("a:1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '"pass-one"',
        '{"a:1": {"password": "pass-one"}}',
        '{"a:1": "pass-one"}',
        "\xff pass-one",
        '{"a:1": {"user": "pass-one", "password": "", "ca": "ca.pem"}}',
    ],
)
def test_a_keyring_that_makes_no_sense_is_told_without_what_it_says(file: Path, text: str) -> None:
    file.touch(0o600)
    file.write_text(text)
    with pytest.raises(BindError, match="HW4209") as caught:
        client_settings("a:1")
    told = "".join(traceback.format_exception(caught.value, limit=0))
    assert "pass-one" not in told


def test_a_keyring_that_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    use(tmp_path)
    try:
        with pytest.raises(BindError, match="HW4209"):
            find("a:1")
    finally:
        use(None)
    with pytest.raises(BindError, match="HW4209"):
        write(tmp_path / "nowhere" / "keyring.json", {})


@pytest.mark.parametrize("content", [None, "", "-----BEGIN PRIVATE KEY-----"])
def test_an_authority_that_cannot_be_read_is_told_and_not_taken_for_a_silent_broker(
    file: Path, content: str | None
) -> None:
    Path("ca.pem").unlink()
    if content is not None:
        Path("ca.pem").write_text(content)
    write(file, {"a:1": ONE})
    for ask in (find, client_settings, spark_options):
        with pytest.raises(BindError, match=r"HW4209.*'ca\.pem' for a:1"):
            ask("a:1")
    assert find("b:1") is None


def test_nothing_secret_is_in_a_repr(tmp_path: Path) -> None:
    access = Access("headwater", "pass-one", tmp_path, tmp_path, tmp_path)
    assert "pass-one" not in repr(access) + repr(ONE) + repr(access.credentials)


def test_passwords_differ_by_site_and_by_secret() -> None:
    found = {broker_password(secret, site) for secret in (b"a", b"b") for site in ("x", "y", "ü")}
    assert len(found) == 6
    assert all(len(one) == 64 and int(one, 16) >= 0 for one in found)
    assert broker_password(b"key", "site") == broker_password(b"key", "site")


def test_a_password_with_quotes_stays_one_word() -> None:
    assert jaas("me", 'a"b\\c').endswith('username="me" password="a\\"b\\\\c";')


@pytest.mark.parametrize(("user", "password"), [("a b", "x"), ('a"', "x"), ("", "x"), ("a", "ü"), ("a", "x\ny=z")])
def test_a_user_or_password_that_would_break_the_settings_is_refused(tmp_path: Path, user: str, password: str) -> None:
    access = Access(user, password, tmp_path, tmp_path, tmp_path)
    with pytest.raises(BindError, match="HW4208"):
        broker_files({"CLIENT": "a:1"}, 2, 60.0, access)


def test_what_only_this_machine_reaches_is_told_from_the_rest() -> None:
    assert [is_loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [is_loopback(one) for one in ("0.0.0.0", "::", "10.0.0.1", "", "no such host.invalid")] == [False] * 5


def test_an_entry_is_kept_as_it_was_given(file: Path) -> None:
    write(file, {"a:1": Credentials("ü", '"\\', "ca.pem")})
    assert find("a:1") == Credentials("ü", '"\\', "ca.pem")
    assert json.loads(file.read_text()) == {"a:1": {"user": "ü", "password": '"\\', "ca": "ca.pem"}}
    assert keyring.rdkafka_settings(None) == {}

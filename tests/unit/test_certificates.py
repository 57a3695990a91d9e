"""Does a certificate let in who it should, keep out the rest, and last as long as it may?"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.bind.certificates import Certificate, issue, make_ca
from headwater.errors import BindError

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def loaded(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def shakes_hands(server: Certificate, ca: Path, host: str) -> bool:
    """Whether a client that trusts `ca` takes the server for this host."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(server.certificate, server.key)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            serving.wrap_socket(theirs, server_side=True).close()
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ssl.create_default_context(cafile=str(ca)).wrap_socket(ours, server_hostname=host):
            return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        ours.close()
        thread.join()


def test_a_certificate_is_good_for_its_hosts_and_for_no_other(tmp_path: Path) -> None:
    one = issue(tmp_path, "edge-1", ["edge-1.example.org", "10.0.0.7", "fd00::7"])
    for host in ("edge-1.example.org", "10.0.0.7", "fd00::7"):
        assert shakes_hands(one, one.ca, host)
    for host in ("edge-2.example.org", "10.0.0.8"):
        assert not shakes_hands(one, one.ca, host)


def test_another_authority_does_not_vouch_for_it(tmp_path: Path) -> None:
    one = issue(tmp_path / "ours", "edge-1", ["localhost"])
    assert not shakes_hands(one, make_ca(tmp_path / "theirs").certificate, "localhost")


def test_keys_are_on_p256_and_for_their_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        one, ca = issue(tmp_path, "edge-1", ["a"]), make_ca(tmp_path)
    finally:
        os.umask(before)
    for each in (one, ca):
        assert each.key.stat().st_mode & 0o777 == 0o600
        assert each.certificate.stat().st_mode & 0o777 == 0o644
        key = loaded(each.certificate).public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey)
        assert key.curve.name == "secp256r1"


def test_an_authority_lasts_ten_years_and_a_certificate_one(tmp_path: Path) -> None:
    assert make_ca(tmp_path, NOW).ends_at == NOW + 3650 * DAY
    one = issue(tmp_path, "edge-1", ["a"], NOW)
    assert one.ends_at == NOW + 365 * DAY
    assert loaded(one.certificate).not_valid_before_utc == NOW - DAY
    late = NOW + 3500 * DAY
    assert issue(tmp_path, "edge-2", ["a"], late).ends_at == NOW + 3650 * DAY, "not longer than who vouches for it"


def test_what_is_there_is_kept_until_thirty_days_before_its_end(tmp_path: Path) -> None:
    first = issue(tmp_path, "edge-1", ["a", "10.0.0.1"], NOW)
    content = first.certificate.read_bytes(), first.key.read_bytes(), first.ca.read_bytes()
    same = issue(tmp_path, "edge-1", ["10.0.0.1", "A", "a"], NOW + 334 * DAY)
    assert (same.certificate.read_bytes(), same.key.read_bytes(), same.ca.read_bytes()) == content
    assert (first.is_new, same.is_new) == (True, False)
    renewed = issue(tmp_path, "edge-1", ["a", "10.0.0.1"], NOW + 335 * DAY)
    assert renewed.is_new
    assert renewed.ends_at == NOW + 700 * DAY
    assert renewed.key.read_bytes() != content[1]
    assert renewed.ca.read_bytes() == content[2]


def test_other_hosts_ask_for_another_certificate(tmp_path: Path) -> None:
    assert issue(tmp_path, "edge-1", ["a"]).is_new
    two = issue(tmp_path, "edge-1", ["a", "b"])
    assert two.is_new
    assert shakes_hands(two, two.ca, "b")


def test_an_authority_made_anew_vouches_for_what_the_one_before_has_signed(tmp_path: Path) -> None:
    today = datetime.now(UTC)
    before = make_ca(tmp_path, today - 3630 * DAY)
    old = before.certificate.read_bytes()
    one = issue(tmp_path, "edge-1", ["localhost"], today - 25 * DAY)
    assert one.ca.read_bytes() == old
    after = make_ca(tmp_path, today)
    assert after.is_new
    assert after.certificate.read_bytes() != old
    assert after.ends_at > today + 3600 * DAY
    assert shakes_hands(one, after.certificate, "localhost")
    (tmp_path / "old.pem").write_bytes(old)
    assert shakes_hands(one, tmp_path / "old.pem", "localhost")


def test_a_certificate_without_its_key_or_of_another_authority_is_made_anew(tmp_path: Path) -> None:
    one = issue(tmp_path, "edge-1", ["a"])
    one.key.unlink()
    assert issue(tmp_path, "edge-1", ["a"]).is_new
    other = issue(tmp_path, "edge-2", ["a"])
    one.key.write_bytes(other.key.read_bytes())
    assert issue(tmp_path, "edge-1", ["a"]).is_new
    for file in (one.ca, tmp_path / "ca.key"):
        file.unlink()
    again = issue(tmp_path, "edge-1", ["a"])
    assert again.is_new
    assert shakes_hands(again, again.ca, "a")


@pytest.mark.parametrize("name", ["", "ca", "../x", "a/b", "-a", ".a", "a b", "x" * 65, "a\n"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BindError, match="HW4212"):
        issue(tmp_path, name, ["a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("host", ["", "a b", "a:9092", "-a", "a..b", "ü.example", "x" * 64, "http://a", "10.0.0.1/24"])
def test_a_host_that_is_none_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(BindError, match="HW4212"):
        issue(tmp_path, "edge-1", ["a", host])


def test_a_certificate_for_no_host_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BindError, match=r"HW4212.*at least one"):
        issue(tmp_path, "edge-1", [])


def test_an_authority_that_is_not_whole_is_never_replaced(tmp_path: Path) -> None:
    ca = make_ca(tmp_path)
    content = ca.certificate.read_bytes()
    key = ca.key.read_bytes()
    ca.key.unlink()
    with pytest.raises(BindError, match=r"HW4211.*bring the key back"):
        issue(tmp_path, "edge-1", ["a"])
    make_ca(tmp_path / "other")
    ca.key.write_bytes((tmp_path / "other" / "ca.key").read_bytes())
    ca.key.chmod(0o600)
    with pytest.raises(BindError, match=r"HW4211.*is not its key"):
        make_ca(tmp_path)
    ca.key.write_bytes(b"nothing")
    with pytest.raises(BindError, match=r"HW4211.*not a key"):
        make_ca(tmp_path)
    ca.key.write_bytes(key)
    ca.key.chmod(0o640)
    with pytest.raises(BindError, match=r"HW4211.*mode 640"):
        make_ca(tmp_path)
    ca.key.chmod(0o600)
    assert ca.certificate.read_bytes() == content
    ca.certificate.write_bytes(b"nothing")
    with pytest.raises(BindError, match=r"HW4211.*not a certificate"):
        make_ca(tmp_path)


def test_a_certificate_of_a_site_is_no_authority(tmp_path: Path) -> None:
    one = issue(tmp_path / "a", "edge-1", ["a"])
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ca.pem").write_bytes(one.certificate.read_bytes())
    one.key.rename(tmp_path / "b" / "ca.key")
    with pytest.raises(BindError, match=r"HW4211.*no authority"):
        make_ca(tmp_path / "b")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BindError, match="HW4213"):
        make_ca(tmp_path / "file" / "folder")


def test_two_processes_that_begin_at_once_have_the_same_authority(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from headwater.bind.certificates import issue; "
    program += "issue(Path(sys.argv[1]), sys.argv[2], ['localhost'])"
    started = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), f"site-{i}"]) for i in range(3)]
    assert [each.wait(60) for each in started] == [0, 0, 0]
    for i in range(3):
        one = issue(tmp_path, f"site-{i}", ["localhost"])
        assert not one.is_new
        assert shakes_hands(one, one.ca, "localhost")

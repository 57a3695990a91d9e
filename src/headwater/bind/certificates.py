"""Who says that a broker or a controller is the one that it says it is?

An authority of our own: `make_ca` makes it in a folder, `issue` signs a certificate for a name and the hosts that
it is reached by. Both keep what is there as long as it is good, and so may be called at every start. Keys are on
P-256 and can be read by their owner only. Who wants certificates of another authority puts them in the place of ours.

    ca.pem, ca.key         the authority: ca.pem goes to every site, ca.key stays here
    NAME.pem, NAME.key     what it has issued, with its name

    HW4211   a certificate or key that is there cannot be used
    HW4212   a name or a host that no certificate can have
    HW4213   the folder refuses
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headwater.bind.keyring import write_private
from headwater.errors import BindError

__all__ = ["Certificate", "issue", "make_ca"]

CA_NAME = "ca"
CA_LIFE = timedelta(days=3650)
LIFE = timedelta(days=365)
RENEWAL = timedelta(days=30)  # before its end a certificate is made anew
EARLIER = timedelta(days=1)  # that it is good before it was made: clocks of sites may be slow
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")


@dataclass(frozen=True, slots=True)
class Certificate:
    """Where a certificate is."""

    certificate: Path
    key: Path
    ca: Path  # the certificate of whoever signed it
    ends_at: datetime
    is_new: bool  # whether it was made by this call


def make_ca(folder: Path, now: datetime | None = None) -> Certificate:
    """Return the authority in a folder; made, good for 10 years, if there is none.

    One that ends soon is made anew with the same key: what it has signed stays good.

    Args:
        folder: Made if it is not there.
        now: The time; None: that of this machine's clock.

    Raises:
        BindError: HW4211, what is there is not an authority; HW4213, the folder refuses.
    """
    with _held(folder):
        return _make_ca(folder, now or datetime.now(UTC))


def issue(folder: Path, name: str, hosts: Iterable[str], now: datetime | None = None) -> Certificate:
    """Return a certificate of the authority in a folder, good for a year; made anew if it ends soon or does not fit.

    Args:
        folder: Of the authority, which is made if there is none.
        name: Whose it is; that of its files too.
        hosts: Names and addresses that it is reached by.
        now: The time; None: that of this machine's clock.

    Raises:
        BindError: HW4211, what is there cannot be used; HW4212, the name or a host is none; HW4213, the folder refuses.
    """
    if not NAME.fullmatch(name) or name == CA_NAME:
        raise BindError(
            f"HW4212 '{name}' cannot be the name of a certificate: letters, digits, '.', '_' and '-' make one, at "
            f"most 64, and '{CA_NAME}' is the authority's own; choose another name"
        )
    wanted = sorted({_host(one) for one in hosts}, key=str)
    if not wanted:
        raise BindError(
            f"HW4212 the certificate '{name}' is for no host; name at least one name or address that it is reached by"
        )
    moment = now or datetime.now(UTC)
    with _held(folder):
        ca = _make_ca(folder, moment)
        authority, ca_key = _certificate(ca.certificate), _key(ca.key)
        certificate_file, key_file = folder / f"{name}.pem", folder / f"{name}.key"
        if certificate_file.exists() and key_file.exists():
            there = _certificate(certificate_file)
            if _fits(there, _key(key_file), authority, name, wanted) and there.not_valid_after_utc > moment + RENEWAL:
                return Certificate(certificate_file, key_file, ca.certificate, there.not_valid_after_utc, False)
        key = ec.generate_private_key(ec.SECP256R1())
        ends_at = min(moment + LIFE, authority.not_valid_after_utc)
        made = _leaf(name, key, authority, wanted, moment, ends_at).sign(ca_key, hashes.SHA256())
        write_private(key_file, _pem(key))
        _write_open(certificate_file, made)
        return Certificate(certificate_file, key_file, ca.certificate, made.not_valid_after_utc, True)


def _make_ca(folder: Path, now: datetime) -> Certificate:
    certificate_file, key_file = folder / f"{CA_NAME}.pem", folder / f"{CA_NAME}.key"
    there = _certificate(certificate_file) if certificate_file.exists() else None
    if there is not None and not key_file.exists():
        raise BindError(
            f"HW4211 the authority's certificate '{certificate_file}' is there and its key '{key_file.name}' is not; "
            "bring the key back, or move the certificate away to have a new authority made"
        )
    key = _key(key_file) if key_file.exists() else ec.generate_private_key(ec.SECP256R1())
    if there is not None:
        if not _is_ca(there) or there.public_key() != key.public_key():
            raise BindError(
                f"HW4211 '{certificate_file}' is no authority's certificate, or '{key_file.name}' is not its key; "
                "bring back those that belong together, or move both away to have a new authority made"
            )
        if there.not_valid_after_utc > now + RENEWAL:
            return Certificate(certificate_file, key_file, certificate_file, there.not_valid_after_utc, False)
    subject = there.subject if there is not None else _named(f"Headwater authority {os.urandom(4).hex()}")
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _begun(subject, subject, key, now, now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_uses(is_ca=True), critical=True)
        .add_extension(own, critical=False)
        .sign(key, hashes.SHA256())
    )
    write_private(key_file, _pem(key))
    _write_open(certificate_file, made)
    return Certificate(certificate_file, key_file, certificate_file, made.not_valid_after_utc, True)


def _leaf(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    hosts: list[x509.GeneralName],
    now: datetime,
    ends_at: datetime,
) -> x509.CertificateBuilder:
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signer = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return (
        _begun(_named(name), authority.subject, key, now, ends_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_uses(is_ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), critical=False)
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, ends_at: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(ends_at)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _uses(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _fits(
    there: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    name: str,
    hosts: list[x509.GeneralName],
) -> bool:
    """Return whether a certificate is for this key, name and these hosts, and signed by this authority."""
    try:
        there.verify_directly_issued_by(authority)
        named = there.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    is_same = there.public_key() == key.public_key() and there.subject == _named(name)
    return is_same and sorted(named, key=str) == hosts


def _is_ca(there: x509.Certificate) -> bool:
    try:
        there.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        return there.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _host(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if len(host) > 253 or not all(LABEL.fullmatch(one) for one in host.removeprefix("*.").split(".")):
        raise BindError(
            f"HW4212 '{host}' is neither an address nor the name of a host; name hosts like 'edge-1.example.org' or "
            "'10.0.0.7', without a port"
        )
    return x509.DNSName(host.lower())


def _certificate(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BindError(
            f"HW4211 '{file}' is not a certificate in PEM form; move it away to have a new one made"
        ) from error


def _key(file: Path) -> ec.EllipticCurvePrivateKey:
    mode = file.stat().st_mode & 0o777
    if mode & 0o077:
        raise BindError(
            f"HW4211 the key '{file}' can be used by others than its owner (mode {mode:o}, allowed 600); "
            "chmod 600 it, and have a new one made if somebody may have read it"
        )
    try:
        found = serialization.load_pem_private_key(file.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise BindError(
            f"HW4211 '{file}' is not a key on an elliptic curve in PEM form without a password; "
            "move it and its certificate away to have new ones made"
        )
    return found


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_open(file: Path, certificate: x509.Certificate) -> None:
    """Write a certificate, which everybody may read, in the place of the one before."""
    passing = file.with_name(f".{file.name}.new")
    passing.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    passing.chmod(0o644)
    passing.replace(file)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """One process at a time; what the folder refuses is told."""
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        with (folder / ".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise BindError(
            f"HW4213 certificates cannot be kept in '{folder}': {error.strerror or error} "
            f"({error.filename or folder}); name a folder that this user can write"
        ) from error

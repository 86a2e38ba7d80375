"""What workers say to each other: one line of JSON a message, bounded, and signed where the job has a secret."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec

from hwprobe.cluster.record import NodeRecord, TaskName
from hwprobe.errors import AgreementError, InputError
from hwprobe.files import open_without_waiting
from hwprobe.serialize import from_json, to_json
from hwprobe.source import Fact

SCHEMA: Literal["hwprobe.agree/1"] = "hwprobe.agree/1"

MAX_ASKING_BYTES = 128 * 2**10
"""Longest line that the chief reads: a record, its quotes doubled by the envelope."""

MAX_ANSWER_BYTES = 32 * 2**20
"""Longest line that a worker reads: a plan with the names of all nodes."""

MAX_SECRET_BYTES = 4096

T = TypeVar("T")
Nonce = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$(?!\n)")]


class Hello(Fact, frozen=True, kw_only=True):
    """The chief's first line.

    Attributes:
        nonce: Its part of what every signature covers, so that no message of another run fits.
        signed: Whether the chief has a secret.
        seconds_left: How long it still waits for workers.
    """

    schema: Literal["hwprobe.agree/1"]
    nonce: Nonce
    signed: bool
    seconds_left: float


class Envelope(Fact, frozen=True, kw_only=True):
    """Every later line.

    Attributes:
        body: JSON of a `Joining`, `Answer` or `Receipt`, as text, so that the signature covers its very bytes.
        nonce: The worker's part of what the signatures cover; the chief repeats it.
        mac: HMAC-SHA256 over role, both nonces and body; None without a secret.
    """

    schema: Literal["hwprobe.agree/1"]
    body: str
    nonce: Nonce
    mac: str | None = None


class Joining(Fact, frozen=True, kw_only=True):
    """What a worker sends.

    Attributes:
        task: Which worker it is.
        count: How many workers it knows of.
        record: What it can use.
    """

    task: TaskName
    count: int
    record: NodeRecord


class Answer(Fact, frozen=True, kw_only=True):
    """What the chief sends: a plan, or why there is none.

    Attributes:
        plan: The plan's JSON.
        refused: The reason.
    """

    plan: str | None = None
    refused: str | None = None


class Receipt(Fact, frozen=True, kw_only=True):
    """What a worker sends when it has the plan.

    Attributes:
        digest: The plan's.
    """

    digest: str


def new_nonce() -> str:
    """32 hexadecimal digits that nobody can foresee."""
    return secrets.token_hex(16)


def to_line(message: Hello | Envelope) -> bytes:
    """Write a message as one line."""
    return to_json(message).encode() + b"\n"


def seal(
    body: Joining | Answer | Receipt, *, role: Literal["chief", "worker"], nonces: tuple[str, str], secret: bytes | None
) -> Envelope:
    """Put a body into its envelope.

    Args:
        body: What is said.
        role: Who says it.
        nonces: The chief's and the worker's.
        secret: Of the job; None sends it unsigned.
    """
    text = to_json(body)
    mac = None if secret is None else _mac(secret, role, nonces, text)
    return Envelope(schema=SCHEMA, body=text, nonce=nonces[1], mac=mac)


def unseal(
    envelope: Envelope,
    type_: type[T],
    *,
    role: Literal["chief", "worker"],
    nonces: tuple[str, str],
    secret: bytes | None,
) -> T:
    """Take a body out of its envelope, if it is who it says.

    Args:
        envelope: As it came.
        type_: `Joining`, `Answer` or `Receipt`.
        role: Who should have sent it.
        nonces: The chief's and the worker's.
        secret: Of the job; None accepts what is not signed, and only that.

    Raises:
        AgreementError: The signature is missing, wrong, or there is one although this process has no secret.
        InputError: The body has another form.
    """
    if secret is None and envelope.mac is not None:
        raise AgreementError("it is signed and this process has no secret: set HWPROBE_SECRET or HWPROBE_SECRET_FILE")
    if secret is not None:
        if envelope.mac is None:
            raise AgreementError("it is not signed and this job has a secret (HWPROBE_SECRET, HWPROBE_SECRET_FILE)")
        if not hmac.compare_digest(envelope.mac.encode(), _mac(secret, role, nonces, envelope.body).encode()):
            raise AgreementError("its signature is wrong: its secret is another one, or the message was changed")
    return from_json(envelope.body, type_, where="message")


def from_line(line: bytes, type_: type[T]) -> T:
    """Read one line.

    Raises:
        InputError: It is cut off, or is no message of this protocol.
    """
    if not line.endswith(b"\n"):
        raise InputError("message: cut off" if line else "message: nothing came")
    return from_json(line, type_, where="message")


def read_secret(environment: Mapping[str, str]) -> bytes | None:
    """Read the secret that the workers of a job share.

    Args:
        environment: Usually `os.environ`: `HWPROBE_SECRET` holds it, or `HWPROBE_SECRET_FILE` names a file with it.

    Raises:
        InputError: Both are set, the file cannot be read, or the secret is empty or too long.
    """
    value, path = environment.get("HWPROBE_SECRET"), environment.get("HWPROBE_SECRET_FILE")
    if value is not None and path is not None:
        raise InputError("HWPROBE_SECRET and HWPROBE_SECRET_FILE are both set: set one of them")
    if path is not None:
        return _secret_from_file(Path(path))
    if value is None:
        return None
    return _usable_secret(value.encode(errors="surrogateescape"), "HWPROBE_SECRET")


def _secret_from_file(path: Path) -> bytes:
    try:
        with open_without_waiting(path) as stream:
            secret = stream.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise InputError(f"HWPROBE_SECRET_FILE={path}: {error.strerror or error}") from error
    return _usable_secret(secret, f"HWPROBE_SECRET_FILE={path}")


def _usable_secret(secret: bytes, where: str) -> bytes:
    secret = secret.strip()
    if not 0 < len(secret) <= MAX_SECRET_BYTES:
        raise InputError(f"{where}: expected 1 to {MAX_SECRET_BYTES} bytes, blanks around them not counted")
    return secret


def _mac(secret: bytes, role: str, nonces: tuple[str, str], body: str) -> str:
    covered = "\n".join((SCHEMA, role, *nonces, body))
    return hmac.new(secret, covered.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()

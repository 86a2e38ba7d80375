"""After a distribution strategy is made: do all its replicas have the same precision?

Nothing in TensorFlow compares dtype policies between workers. Variables and gradients are float32 in every mixed
policy, so a job in which one worker computes in bfloat16 and another in float32 trains to its end without a word.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from hwprobe.cluster.job import current_host
from hwprobe.cluster.workers import find_workers
from hwprobe.errors import AgreementError, UnsupportedError
from hwprobe.source import Fact

DEFAULT_TIMEOUT_SECONDS = 60.0

_TEXT_BYTES = 384
_DIGEST_BYTES = 32


class Fingerprint(Fact, frozen=True, kw_only=True):
    """What has to be the same in every process of a strategy.

    Attributes:
        dtype_policy: Global dtype policy of every Keras in use: `keras mixed_bfloat16`.
        loss_scaling: What hwprobe has decided in this process, as text.
        versions: Of TensorFlow and the Keras packages.
    """

    dtype_policy: str
    loss_scaling: str
    versions: dict[str, str]

    @property
    def digest(self) -> bytes:
        """SHA-256 over what has to match; of a version, as in a plan, the first two numbers."""
        minor = sorted((name, number.split(".")[:2]) for name, number in self.versions.items())
        return hashlib.sha256(repr((self.dtype_policy, self.loss_scaling, minor)).encode()).digest()

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.dtype_policy}; {self.loss_scaling}; {versions}"


class _Replica(Fact, frozen=True, kw_only=True):
    number: int
    where: str
    digest: bytes
    text: str


def own_fingerprint() -> Fingerprint:
    """Read policy, loss scaling and versions in this process and this thread."""
    from hwprobe.apply import keras_in_use
    from hwprobe.scaling.in_force import in_force

    scaling = in_force()
    policies = [
        f"{name} {module.mixed_precision.global_policy().name}"
        for name, module in sorted(keras_in_use().modules.items())
    ]
    packages = {"TensorFlow": "tensorflow", "Keras": "keras", "tf_keras": "tf_keras"}
    return Fingerprint(
        dtype_policy=", ".join(policies),
        loss_scaling=str(scaling) if scaling is not None else "loss scaling not decided by hwprobe",
        versions={name: number for name, package in packages.items() if (number := _installed(package)) is not None},
    )


def verify_strategy(strategy: Any, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> Fingerprint:
    """Compare policy, loss scaling and versions over all replicas of a strategy.

    Every worker has to call it, right after the strategy is made. One table of bytes is reduced over the strategy,
    in which each replica fills its own row.

    Args:
        strategy: Any `tf.distribute.Strategy` with synchronous replicas.
        timeout_seconds: Limit for the reduction between several workers.

    Returns:
        What all replicas have.

    Raises:
        AgreementError: Replicas differ (the text names which, and in what), or they could not be compared.
        UnsupportedError: The strategy has no synchronous replicas to compare.
    """
    import tensorflow as tf

    own = own_fingerprint()
    asynchronous = (tf.distribute.experimental.ParameterServerStrategy, tf.distribute.ParameterServerStrategy)
    if isinstance(strategy, asynchronous):
        raise UnsupportedError(
            "the workers of a ParameterServerStrategy run when they are asked and cannot be compared in one step; "
            "give every task the same plan (HWPROBE_PLAN)"
        )
    count = strategy.num_replicas_in_sync
    if count < 2:
        return own
    try:
        table = _gather_rows(tf, strategy, _row(own), count, timeout_seconds)
    except tf.errors.OpError as error:
        raise AgreementError(
            f"the replicas could not be compared ({error.message}): every worker has to call hwprobe.verify(strategy) "
            f"right after it has made the strategy"
        ) from error
    _raise_on_difference([_replica(number, row) for number, row in enumerate(table)])
    return own


def _gather_rows(tf: Any, strategy: Any, row: bytes, count: int, timeout_seconds: float) -> list[bytes]:
    options = tf.distribute.experimental.CommunicationOptions(timeout_seconds=timeout_seconds)

    def place_own_row() -> Any:
        context = tf.distribute.get_replica_context()
        # float32 has a reduction on every device and in every library; a byte is exact in it, and no two rows add up.
        position = tf.one_hot(context.replica_id_in_sync_group, count, dtype=tf.float32)
        table = position[:, tf.newaxis] * tf.constant(list(row), dtype=tf.float32)[tf.newaxis, :]
        return context.all_reduce(tf.distribute.ReduceOp.SUM, table, options=options)

    everywhere = strategy.run(place_own_row)
    rows: list[list[float]] = strategy.experimental_local_results(everywhere)[0].numpy().tolist()
    return [bytes(int(piece) for piece in row) for row in rows]


def _row(own: Fingerprint) -> bytes:
    text = f"{_where()}\n{own}".encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0")
    return own.digest + text


def _replica(number: int, row: bytes) -> _Replica:
    where, _, text = row[_DIGEST_BYTES:].rstrip(b"\0").decode(errors="replace").partition("\n")
    return _Replica(number=number, where=where, digest=row[:_DIGEST_BYTES], text=text)


def _raise_on_difference(replicas: Sequence[_Replica]) -> None:
    alike: dict[bytes, list[_Replica]] = {}
    for replica in replicas:
        alike.setdefault(replica.digest, []).append(replica)
    if len(alike) > 1:
        groups = "; ".join(
            f"{group[0].text} on {', '.join(f'replica {replica.number} ({replica.where})' for replica in group)}"
            for group in sorted(alike.values(), key=len)
        )
        raise AgreementError(
            f"the replicas of this job do not have the same precision: {groups}. "
            f"Let hwprobe.auto_configure() decide in every worker, or give all of them one plan; set no policy by hand"
        )


def _where() -> str:
    workers = find_workers(os.environ)
    host = current_host(os.environ)
    return host if workers is None else f"{host}, {workers.task}"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None

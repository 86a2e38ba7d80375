"""The four kernels: a matrix product, a convolution, attention, an optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hwprobe.bench.facts import KernelName


@dataclass(frozen=True)
class Kernel:
    """One kernel at any of its sizes.

    Attributes:
        name: Which.
        sizes: From small to large; the first one is small enough to be checked against float64.
        shapes: Shapes of its inputs at a size.
        kept_in_float32: Positions of inputs that stay float32 in every mode.
        compute: The work, on tensors.
        words: The size, for people.
    """

    name: KernelName
    sizes: tuple[int, ...]
    shapes: Callable[[int], list[tuple[int, ...]]]
    kept_in_float32: tuple[int, ...]
    compute: Callable[..., Any]
    words: Callable[[int], str]

    def bytes_at(self, size: int) -> int:
        """Memory of its inputs in float32, and as much again for what it makes."""
        elements = 0
        for shape in self.shapes(size):
            product = 1
            for length in shape:
                product *= length
            elements += product
        return elements * 4 * 2


def _product(left: Any, right: Any) -> Any:
    import tensorflow as tf

    return tf.linalg.matmul(left, right)


def _convolve(images: Any, filters: Any) -> Any:
    import tensorflow as tf

    return tf.nn.conv2d(images, filters, strides=1, padding="SAME")


def _attend(queries: Any, keys: Any, values: Any) -> Any:
    import tensorflow as tf

    scale = tf.cast(queries.shape[-1] ** -0.5, queries.dtype)
    scores = tf.linalg.matmul(queries, keys, transpose_b=True) * scale
    return tf.linalg.matmul(tf.nn.softmax(scores), values)


def _update(weights: Any, mean: Any, square: Any, gradient: Any) -> Any:
    """One step of Adam on float32 weights; a float16 gradient is tested and unscaled first, as loss scaling does."""
    import tensorflow as tf

    wide = tf.cast(gradient, weights.dtype)
    if gradient.dtype == tf.float16:
        finite = tf.reduce_all(tf.math.is_finite(gradient))
        wide = tf.where(finite, wide * tf.constant(1.0, weights.dtype), tf.zeros_like(wide))
    mean = 0.9 * mean + 0.1 * wide
    square = 0.999 * square + 0.001 * tf.square(wide)
    return weights - 1e-3 * mean / (tf.sqrt(square) + 1e-7)


KERNELS: tuple[Kernel, ...] = (
    Kernel(
        name="matmul",
        sizes=(128, 256, 512, 1024, 2048, 4096, 8192),
        shapes=lambda n: [(n, n), (n, n)],
        kept_in_float32=(),
        compute=_product,
        words=lambda n: f"{n}x{n}",
    ),
    Kernel(
        name="convolution",
        sizes=(1, 2, 4, 8, 16, 32, 64, 128),
        shapes=lambda n: [(n, 56, 56, 64), (3, 3, 64, 64)],
        kept_in_float32=(),
        compute=_convolve,
        words=lambda n: f"{n} x 56x56x64, 3x3",
    ),
    Kernel(
        name="attention",
        sizes=(1, 2, 4, 8, 16, 32, 64),
        shapes=lambda n: [(n, 8, 256, 64)] * 3,
        kept_in_float32=(),
        compute=_attend,
        words=lambda n: f"{n} x 8 heads x 256x64",
    ),
    Kernel(
        name="optimizer",
        sizes=(2**16, 2**18, 2**20, 2**22, 2**24),
        shapes=lambda n: [(n,)] * 4,
        kept_in_float32=(0, 1, 2),
        compute=_update,
        words=lambda n: f"Adam, {n / 1e6:.2g} M weights",
    ),
)

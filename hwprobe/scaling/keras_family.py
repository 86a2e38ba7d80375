"""Which Keras an object belongs to: Keras 3, Keras 2 or tf_keras. A process can hold two of them."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any, Literal

from hwprobe.errors import InputError
from hwprobe.source import Fact


class KerasFamily(Fact, frozen=True, kw_only=True):
    """One Keras of this process.

    Attributes:
        package: Its import name.
        generation: 3 for Keras 3; 2 for Keras 2 and for tf_keras, which is Keras 2 under another name.
    """

    package: Literal["keras", "tf_keras"]
    generation: Literal[2, 3]

    @property
    def module(self) -> ModuleType:
        """The package itself; for Keras 2 what `tf.keras` shows of it."""
        if self.package == "keras" and self.generation == 2:
            # Up to 2.12 the package itself holds other classes under some of the public names.
            return importlib.import_module("keras.api._v2.keras")
        return importlib.import_module(self.package)

    @property
    def backend(self) -> str:
        """`tensorflow`, `jax`, `torch` or `numpy`; Keras 2 has TensorFlow only."""
        return str(self.module.backend.backend()) if self.generation == 3 else "tensorflow"

    @property
    def global_policy(self) -> str:
        """Name of the dtype policy that new layers get in this thread."""
        return str(self.module.mixed_precision.global_policy().name)

    def __str__(self) -> str:
        return "tf_keras" if self.package == "tf_keras" else f"Keras {self.generation}"


def family_of(thing: Any) -> KerasFamily | None:
    """Find the Keras that a model, layer or optimizer is made of.

    Args:
        thing: An object; classes of the user's own count by what they are derived from.

    Returns:
        The family, or None where no Keras class is among its ancestors.
    """
    packages = {ancestor.__module__.partition(".")[0] for ancestor in type(thing).__mro__}
    if "tf_keras" in packages:
        return KerasFamily(package="tf_keras", generation=2)
    if "keras" in packages:
        return KerasFamily(package="keras", generation=_generation())
    return None


def expect_family(thing: Any, what: str) -> KerasFamily:
    """Find the Keras of an object, or say what was expected.

    Args:
        thing: The object that a user handed over.
        what: What it should be, for the message: `an optimizer`, `a model`.

    Raises:
        InputError: It belongs to no Keras.
    """
    family = family_of(thing)
    if family is None:
        kind = f"{type(thing).__module__}.{type(thing).__qualname__}"
        raise InputError(f"expected {what} of Keras 3, Keras 2 or tf_keras, got {kind}")
    return family


def loaded_families() -> tuple[KerasFamily, ...]:
    """Give the families whose packages this process has imported already; imports nothing."""
    families = []
    if hasattr(sys.modules.get("keras"), "optimizers"):
        families.append(KerasFamily(package="keras", generation=_generation()))
    if hasattr(sys.modules.get("tf_keras"), "optimizers"):
        families.append(KerasFamily(package="tf_keras", generation=2))
    return tuple(families)


def _generation() -> Literal[2, 3]:
    # `keras.ops` exists from 3.0 on; tf.keras hides `__version__` in some releases, so the version is no test.
    return 3 if hasattr(importlib.import_module("keras"), "ops") else 2

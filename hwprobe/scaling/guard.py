"""A Keras callback that watches the loss scale, in `fit` and in a loop of one's own."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Literal, get_args

from msgspec.structs import replace

from hwprobe.errors import InputError
from hwprobe.findings import Finding, Severity
from hwprobe.scaling.gradients import underflow_share
from hwprobe.scaling.keras_family import KerasFamily, family_of, loaded_families
from hwprobe.scaling.reading import read_scaling
from hwprobe.scaling.rules import NON_FINITE_FORWARD
from hwprobe.scaling.twins import first_non_finite_layer
from hwprobe.scaling.watch import Seen, Watch
from hwprobe.scaling.wrap import adopt, strategy_scope

logger = logging.getLogger("hwprobe.scaling")

OnFailure = Literal["warn", "stop", "restore"]

_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}

_lock = threading.Lock()
_classes: dict[tuple[type[Any], ...], type[Any]] = {}


class LossScaleGuard:
    """Watches the loss scale and says once, with the remedy, what is wrong with it.

    It tells apart: a first scale that was too large (HWP611), a forward pass that gives NaN (HWP612), a scale that
    falls for ever (HWP613), one that is stuck (HWP614), weights that are not finite any more (HWP615), and gradients
    that are lost below float16's range (HWP616). It writes `loss_scale` and `skipped_steps` into the logs of each
    epoch; callbacks after it in the list, such as CSVLogger and TensorBoard, and the history show them.

    As a callback it belongs to every Keras that was imported when it is made.

    Args:
        on_failure: What an error does. `warn` only says it; `stop` ends the training; `restore` also puts weights and
            optimizer back to where they were at the end of the last good epoch, or at the start.
        patience: Skipped steps in a row that are still a search for the right scale.
        exchange: Put hwprobe's scaler in the place of Keras 3's own when training starts (`hwprobe.scaling.adopt`).
        sample: A batch (x, y) of the training data. With it the layer that gives the first NaN is named, and lost
            gradients are looked for at the end of each epoch. TensorFlow only.
        loss: Loss for the sample: a Keras loss or a function of targets and predictions. Default: the compiled one.

    Attributes:
        findings: Everything that was said.
        should_stop: Whether an error was found and `on_failure` is not `warn`; for a loop of one's own.
        loss_scale: The scale at the last look.
        skipped_steps: Steps that were not applied, until the last look.

    Raises:
        InputError: An argument is not understood.
    """

    def __new__(cls, *_args: Any, **_kwargs: Any) -> LossScaleGuard:
        """Make a guard that is a callback of each loaded Keras."""
        bases = (cls, *(callback for callback in _callback_classes() if not issubclass(cls, callback)))
        with _lock:
            if bases not in _classes:
                body = {"__module__": cls.__module__, "__doc__": cls.__doc__}
                _classes[bases] = cls if len(bases) == 1 else type(cls.__name__, bases, body)
            kind = _classes[bases]
        guard: LossScaleGuard = object.__new__(kind)
        return guard

    def __init__(
        self,
        on_failure: OnFailure = "warn",
        *,
        patience: int = 10,
        exchange: bool = True,
        sample: Sequence[Any] | None = None,
        loss: Any = None,
    ) -> None:
        if on_failure not in get_args(OnFailure):
            raise InputError(f"on_failure={on_failure!r}: expected one of {', '.join(get_args(OnFailure))}")
        if patience < 1:
            raise InputError(f"patience={patience}: expected at least 1")
        if sample is not None and len(sample) < 2:
            raise InputError("sample: expected a batch (x, y)")
        for callback in _callback_classes():
            callback.__init__(self)
        self.findings: list[Finding] = []
        self.should_stop = False
        self.loss_scale = 1.0
        self._on_failure, self._exchange = on_failure, exchange
        self._sample, self._loss = sample, loss
        self._watch = Watch(patience)
        self._watched: Any = None
        self._batch = -1
        self._loss_was_finite = True
        self._good: tuple[list[Any], dict[int, Any]] | None = None

    @property
    def skipped_steps(self) -> int:
        """Steps that were not applied, until the last look."""
        return self._watch.skips.skipped_steps

    @property
    def model(self) -> Any:
        """The model that is watched; on JAX with the values of this moment."""
        if hasattr(self._watched, "jax_state_sync"):
            self._watched.jax_state_sync()
        return self._watched

    @model.setter
    def model(self, model: Any) -> None:
        self._watched = model

    def set_model(self, model: Any) -> None:
        """Take the model from Keras, before its training function is made."""
        self._watched = model
        if self._exchange and family_of(model) is not None:
            adopt(model)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 - Keras calls it so
        """Remember where training starts."""
        self._watch.skips.look(read_scaling(self.model.optimizer), 0)
        self._remember()

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras calls it so
        """Start counting batches anew, as Keras does; its mean of the losses starts anew too."""
        self._batch = -1
        self._loss_was_finite = True

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Look at the scale after a batch, or after the batches of one execution."""
        steps, self._batch = max(1, batch - self._batch), batch
        self.update(self.model.optimizer, loss=self._loss_of_step(logs), model=self._watched, steps=steps)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002 - Keras calls it so
        """Write the scale into the logs, look for lost gradients, and remember a good epoch."""
        if logs is not None:
            logs["loss_scale"] = self.loss_scale
            logs["skipped_steps"] = self.skipped_steps
        self.look_for_underflow()
        if not any(each.severity is Severity.ERROR for each in self.findings):
            self._remember()

    def update(self, optimizer: Any, *, loss: Any = None, model: Any = None, steps: int = 1) -> tuple[Finding, ...]:
        """Look at the scale after a step: the call for a loop of one's own.

        Args:
            optimizer: The optimizer that made the step.
            loss: Its loss, unscaled, as a number or a tensor.
            model: The model; with it the weights are looked at when something is wrong, and can be put back.
            steps: Steps since the last call.

        Returns:
            What was not said before.
        """
        if model is not None and model is not self._watched:
            self._watched = model
            self._remember()
        state = read_scaling(optimizer)
        self.loss_scale = state.scale
        seen = Seen(steps=steps, loss=None if loss is None else float(loss), state=state)
        return self._say(self._watch.look(seen, self._weights_are_finite))

    def look_for_underflow(self) -> tuple[Finding, ...]:
        """Look at the gradients of the sample: how many are 0 only because the scale is too small?

        Returns:
            What was not said before; nothing without a sample, a loss and a model on TensorFlow.
        """
        family = self._family_on_tensorflow()
        loss = self._loss if self._loss is not None else getattr(self._watched, "loss", None)
        if family is None or self._sample is None or not (callable(loss) or isinstance(loss, str)):
            return ()
        share = underflow_share(self._watched, family, loss, self.loss_scale, tuple(self._sample))
        return self._say(self._watch.look_at_gradients(share, self.loss_scale))

    def _say(self, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
        said = tuple(self._with_layer(each) if each.id == NON_FINITE_FORWARD.id else each for each in found)
        for each in said:
            self.findings.append(each)
            logger.log(_LEVELS[each.severity], "hwprobe %s: %s%s", each.id, each.message, _remedy(each))
            if each.severity is Severity.ERROR:
                self._act()
        return said

    def _act(self) -> None:
        if self._on_failure == "warn":
            return
        self.should_stop = True
        if self._watched is None:
            return
        if self._on_failure == "restore" and self._good is not None:
            import numpy

            weights, state = self._good
            self.model.set_weights(weights)
            for variable in _state_of(self._watched):
                # Legacy optimizers of Keras 2 make their slots, which start at zero, in the first step.
                variable.assign(state.get(id(variable), numpy.zeros_like(variable.numpy())))
        self._watched.stop_training = True

    def _remember(self) -> None:
        if self._on_failure == "restore" and self._weights_are_finite():
            self._good = (self.model.get_weights(), {id(each): each.numpy() for each in _state_of(self._watched)})

    def _weights_are_finite(self) -> bool | None:
        import numpy

        if self._watched is None:
            return None
        return all(bool(numpy.all(numpy.isfinite(weight))) for weight in self.model.get_weights() if _is_real(weight))

    def _with_layer(self, each: Finding) -> Finding:
        family = self._family_on_tensorflow()
        if family is None or self._sample is None:
            return each
        layer = first_non_finite_layer(self._watched, family, self._sample[0])
        if layer is None:
            text = "On the sample all layers are finite, so look at the data of that step."
        else:
            text = f"On the sample the first layer with a non-finite output is {layer}."
        return replace(each, message=f"{each.message} {text}", evidence={**each.evidence, "layer": layer})

    def _family_on_tensorflow(self) -> KerasFamily | None:
        family = None if self._watched is None else family_of(self._watched)
        return family if family is not None and family.backend == "tensorflow" else None

    def _loss_of_step(self, logs: Any) -> float | None:
        loss = (logs or {}).get("loss")
        if loss is None:
            return None
        # Keras logs the mean since the start of the epoch: after one NaN it says nothing about later steps.
        finite, was_finite = math.isfinite(loss), self._loss_was_finite
        self._loss_was_finite = finite
        return float(loss) if finite or was_finite else None


def _callback_classes() -> tuple[type[Any], ...]:
    if not loaded_families():
        import_module("keras")
    return tuple(family.module.callbacks.Callback for family in loaded_families())


def _remedy(each: Finding) -> str:
    return f" Remedy: {'; '.join(each.fix)}." if each.fix else ""


def _state_of(model: Any) -> list[Any]:
    """Give the variables of a model's optimizer; Keras 2's legacy optimizers have a method for them."""
    optimizer: Any = getattr(model, "optimizer", None)
    if hasattr(optimizer, "build") and not getattr(optimizer, "built", False):
        with strategy_scope(model):
            optimizer.build(model.trainable_variables)
    variables = getattr(optimizer, "variables", None) or ()
    return list(variables() if callable(variables) else variables)


def _is_real(weight: Any) -> bool:
    return str(weight.dtype).startswith(("float", "bfloat"))

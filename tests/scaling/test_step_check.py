"""Training loops that are right, and the mistakes that people make in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.scaling import verify_scaling, wrap_optimizer

keras = pytest.importorskip("keras")
tf = pytest.importorskip("tensorflow")


def right(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(compute_loss())
    optimizer.apply(tape.gradient(loss, variables), variables)


def loss_not_scaled(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = compute_loss()
    optimizer.apply(tape.gradient(loss, variables), variables)


def gradients_not_unscaled(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(compute_loss())
    optimizer.inner_optimizer.apply(tape.gradient(loss, variables), variables)


def unscaled_twice(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = compute_loss()
    gradients = [each / optimizer.dynamic_scale for each in tape.gradient(loss, variables)]
    optimizer.apply(gradients, variables)


def doubled(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    right(optimizer, variables, compute_loss)
    right(optimizer, variables, compute_loss)


def clipped_before_unscaling(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(compute_loss())
    gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 1.0)
    optimizer.apply(gradients, variables)


def no_update(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(compute_loss())
    tape.gradient(loss, variables)


def unknown(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    right(optimizer, variables, lambda: 5.0 * compute_loss())


STEPS = (
    right,
    loss_not_scaled,
    gradients_not_unscaled,
    unscaled_twice,
    doubled,
    clipped_before_unscaling,
    no_update,
    unknown,
)


@pytest.mark.parametrize("scaling", [LossScaling.dynamic(), LossScaling.static(1000.0)], ids=["dynamic", "fixed"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_each_mistake_is_called_by_its_name(step: Callable[..., None], scaling: LossScaling) -> None:
    checked = verify_scaling(wrap_optimizer(keras.optimizers.Adam(), scaling), step)
    assert checked.verdict == step.__name__
    assert bool(checked) is (step is right)
    assert (checked.finding is None) is (step is right)
    if step is not right:
        assert checked.finding is not None
        assert checked.finding.id == "HWP620"
        assert checked.fix


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_keras_own_scaler_is_judged_alike(step: Callable[..., None]) -> None:
    assert verify_scaling(keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam()), step).verdict == step.__name__


def loss_scaled_twice(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
    with tf.GradientTape() as tape:
        loss = optimizer.scale_loss(optimizer.scale_loss(compute_loss()))
    optimizer.apply(tape.gradient(loss, variables), variables)


def test_a_loss_that_is_scaled_twice_cannot_be_told_from_gradients_that_nobody_unscaled() -> None:
    checked = verify_scaling(wrap_optimizer(keras.optimizers.SGD(), "dynamic"), loss_scaled_twice)
    assert checked.verdict == "gradients_not_unscaled"
    assert "or the loss is scaled twice" in checked.message


def test_the_factor_is_that_of_the_scale_in_force() -> None:
    checked = verify_scaling(wrap_optimizer(keras.optimizers.SGD(), LossScaling.dynamic()), loss_not_scaled)
    assert checked.ratio == pytest.approx(1.0 / 32768.0)
    assert "32768 times too small" in str(checked)
    assert "scale_loss" in str(checked)


def test_a_compiled_step_is_judged_as_well() -> None:
    def compiled(optimizer: Any, variables: list[Any], compute_loss: Callable[[], Any]) -> None:
        tf.function(lambda: right(optimizer, variables, compute_loss))()

    assert verify_scaling(wrap_optimizer(keras.optimizers.Adam(), "dynamic"), compiled)


@pytest.mark.parametrize(
    "settings", [{"clipnorm": 0.1}, {"global_clipnorm": 0.3}, {"clipvalue": 0.2}, {"clipnorm": 10.0}], ids=str
)
def test_clipping_by_the_optimizer_itself_is_right(settings: dict[str, Any]) -> None:
    assert verify_scaling(wrap_optimizer(keras.optimizers.SGD(**settings), "dynamic"), right)


def test_one_wrapper_too_many_is_called_an_unscaling_too_many() -> None:
    twice = keras.optimizers.LossScaleOptimizer(wrap_optimizer(keras.optimizers.SGD(), "dynamic"))
    checked = verify_scaling(twice, right)
    assert checked.verdict == "unscaled_twice"
    assert "wrap the optimizer once" in checked.fix[0]


def test_an_optimizer_without_scaling_needs_none() -> None:
    assert verify_scaling(keras.optimizers.Adam(), loss_not_scaled)


def test_the_optimizer_that_training_uses_is_not_touched() -> None:
    optimizer = wrap_optimizer(keras.optimizers.Adam(), "dynamic")
    verify_scaling(optimizer, right)
    assert not optimizer.built


def test_what_is_no_optimizer_is_refused() -> None:
    with pytest.raises(InputError, match="expected an optimizer"):
        verify_scaling("adam", right)

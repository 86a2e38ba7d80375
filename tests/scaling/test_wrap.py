from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from hwprobe.configuration import LossScaling
from hwprobe.errors import InputError
from hwprobe.scaling import adopt, read_scaling, set_in_force, wrap_optimizer
from hwprobe.scaling.keras3_optimizer import is_checked
from hwprobe.scaling.wrap import as_loss_scaling

keras = pytest.importorskip("keras")


def small_model() -> Any:
    keras.utils.set_random_seed(0)  # with some first weights the first scale overflows, and a step is skipped
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")])


def data(rows: int = 8) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    return draw.normal(size=(rows, 3)).astype("float32"), draw.normal(size=(rows, 1)).astype("float32")


class TestWhatIsDue:
    def test_an_explicit_wish_comes_first(self) -> None:
        set_in_force(LossScaling.dynamic())
        assert read_scaling(wrap_optimizer(keras.optimizers.SGD(), "static=64")).loss_scaling == LossScaling.static(64)

    def test_then_the_decision_in_force(self) -> None:
        set_in_force(LossScaling.dynamic(4096.0, growth_steps=50))
        wrapped = wrap_optimizer(keras.optimizers.SGD())
        assert read_scaling(wrapped).loss_scaling == LossScaling.dynamic(4096.0, growth_steps=50)

    def test_the_factor_that_the_optimizer_was_made_with_is_a_wish_for_a_fixed_scale(self) -> None:
        set_in_force(LossScaling.dynamic())
        wrapped = wrap_optimizer(keras.optimizers.SGD(loss_scale_factor=128.0))
        assert read_scaling(wrapped).loss_scaling == LossScaling.static(128.0)
        assert wrapped.inner_optimizer.loss_scale_factor is None

    def test_without_a_decision_the_global_policy_says_whether_scaling_is_due(self, mixed_float16: None) -> None:
        assert read_scaling(wrap_optimizer(keras.optimizers.SGD())).loss_scaling == LossScaling.dynamic()

    @pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
    def test_a_policy_with_enough_range_needs_none(self, float32: None, policy: str) -> None:
        keras.config.set_dtype_policy(policy)
        optimizer = keras.optimizers.SGD()
        assert wrap_optimizer(optimizer) is optimizer

    def test_a_decision_for_no_scaling_leaves_everything_alone(self, mixed_float16: None) -> None:
        set_in_force(LossScaling.none())
        optimizer = keras.optimizers.SGD(loss_scale_factor=128.0)
        assert wrap_optimizer(optimizer) is optimizer
        assert optimizer.loss_scale_factor == 128.0

    def test_a_calibration_can_be_handed_over(self) -> None:
        class Calibrated:
            loss_scaling = LossScaling.static(32.0)

        assert read_scaling(wrap_optimizer(keras.optimizers.SGD(), Calibrated())).scale == 32.0


class TestWrappedOnce:
    def test_wrapping_twice_is_wrapping_once(self) -> None:
        wrapped = wrap_optimizer(keras.optimizers.SGD(), LossScaling.dynamic())
        assert wrap_optimizer(wrapped) is wrapped
        assert wrap_optimizer(wrapped, LossScaling.dynamic()) is wrapped

    def test_keras_own_wrapper_is_kept_and_its_faults_are_named(self, caplog: pytest.LogCaptureFixture) -> None:
        stock = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())
        with caplog.at_level(logging.WARNING, "hwprobe.scaling"):
            assert wrap_optimizer(stock) is stock
        assert "overlooks overflow" in caplog.text

    def test_another_wish_than_the_wrapper_fulfils_is_refused(self) -> None:
        wrapped = wrap_optimizer(keras.optimizers.SGD(), LossScaling.dynamic())
        with pytest.raises(InputError, match="dynamic loss scaling already and was asked for static"):
            wrap_optimizer(wrapped, LossScaling.static(64.0))

    def test_clipping_stays_on_the_optimizer_inside(self) -> None:
        wrapped = wrap_optimizer(keras.optimizers.SGD(clipnorm=1.0), "dynamic")
        assert wrapped.inner_optimizer.clipnorm == 1.0


class TestWhatIsNoOptimizer:
    @pytest.mark.parametrize(
        ("thing", "message"),
        [
            ("adam", "got the name 'adam': pass the object"),
            (object(), "got builtins.object"),
            (None, "got builtins.NoneType"),
        ],
    )
    def test_is_named_with_what_was_expected(self, thing: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            wrap_optimizer(thing)

    def test_a_layer_is_no_optimizer(self) -> None:
        with pytest.raises(InputError, match="expected an optimizer of Keras 3, got its Dense"):
            wrap_optimizer(keras.layers.Dense(1))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (42, "expected a LossScaling"),
        ("static", "expected none, dynamic"),
        (LossScaling(mode="static"), "static scaling needs a positive finite initial_scale, got None"),
        (LossScaling(mode="static", initial_scale=-1.0), "got -1.0"),
        (LossScaling(mode="dynamic", initial_scale=float("nan")), "got nan"),
        (LossScaling.dynamic(growth_steps=0), "growth_steps must be at least 1, got 0"),
    ],
)
def test_a_loss_scaling_that_cannot_be_used_is_refused(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_loss_scaling(value)


def test_a_loss_scaling_gets_the_numbers_that_were_left_out() -> None:
    assert as_loss_scaling(LossScaling(mode="dynamic")) == LossScaling.dynamic()


class TestAdopt:
    def test_compile_puts_keras_own_scaler_in_and_adopt_exchanges_it(self, mixed_float16: None) -> None:
        model = small_model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
        inner = model.optimizer.inner_optimizer
        assert adopt(model)
        assert is_checked(model.optimizer)
        assert model.optimizer.inner_optimizer is inner

    def test_a_training_goes_on_where_it_was(self, mixed_float16: None) -> None:
        model = small_model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        x, y = data()
        model.fit(x, y, epochs=3, verbose=0)
        model.fit(np.full_like(x, np.nan), y, epochs=1, verbose=0)
        moments = [variable.numpy() for variable in model.optimizer.inner_optimizer.variables]
        scale = float(model.optimizer.dynamic_scale)
        assert scale < 2.0**15
        assert adopt(model)
        assert float(model.optimizer.dynamic_scale) == scale
        assert all(
            (now.numpy() == then).all()
            for now, then in zip(model.optimizer.inner_optimizer.variables, moments, strict=True)
        )
        model.fit(x, y, epochs=2, verbose=0)
        assert int(model.optimizer.iterations) == 5
        assert int(model.optimizer.step_counter) == 2

    def test_the_decision_in_force_is_what_is_put_in(self, mixed_float16: None) -> None:
        set_in_force(LossScaling.static(256.0))
        model = small_model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
        assert adopt(model)
        x, y = data()
        model.fit(x, y, verbose=0)
        assert float(model.optimizer.dynamic_scale) == 256.0

    def test_where_no_scaling_was_decided_for_float16_the_optimizer_inside_takes_over(
        self, mixed_float16: None
    ) -> None:
        set_in_force(LossScaling.none())
        model = small_model()
        model.compile(keras.optimizers.Adam(0.01), "mse")
        x, y = data()
        model.fit(x, y, verbose=0)
        inner = model.optimizer.inner_optimizer
        assert adopt(model)
        assert model.optimizer is inner
        model.fit(x, y, verbose=0)
        assert int(model.optimizer.iterations) == 2
        assert not adopt(model)

    def test_a_decision_for_bfloat16_takes_no_scaler_from_a_float16_model(self, mixed_float16: None) -> None:
        model = small_model()
        keras.config.set_dtype_policy("mixed_bfloat16")
        set_in_force(LossScaling.none())
        model.compile(keras.optimizers.Adam(0.01), "mse")
        assert adopt(model)
        assert is_checked(model.optimizer)

    def test_there_is_nothing_to_exchange_where_hwprobe_scales_or_nobody_does(self, mixed_float16: None) -> None:
        model = small_model()
        model.compile(wrap_optimizer(keras.optimizers.SGD(0.01)), "mse")
        assert not adopt(model)
        model.compile(keras.optimizers.SGD(0.01), "mse", auto_scale_loss=False)
        assert not adopt(model)
        assert not adopt(small_model())

    def test_a_scaler_of_the_users_own_class_is_left_alone(self, mixed_float16: None) -> None:
        class Mine(keras.optimizers.LossScaleOptimizer):  # type: ignore[misc, name-defined]
            pass

        model = small_model()
        model.compile(Mine(keras.optimizers.SGD(0.01)), "mse")
        assert not adopt(model)


class TestWaysToMakeCompileTakeOurs:
    """Why the optimizer has to be wrapped: none of Keras' public registries reaches what compile puts in."""

    def compiled(self) -> Any:
        model = small_model()
        model.compile(keras.optimizers.SGD(0.01), "mse")
        return type(model.optimizer)

    def test_a_custom_object_of_the_same_name_is_not_asked(self, mixed_float16: None) -> None:
        ours = type(wrap_optimizer(keras.optimizers.SGD()))
        with keras.saving.custom_object_scope({"LossScaleOptimizer": ours, "keras>LossScaleOptimizer": ours}):
            assert self.compiled() is keras.optimizers.LossScaleOptimizer

    def test_another_class_under_the_public_name_is_not_asked(
        self, mixed_float16: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keras.optimizers, "LossScaleOptimizer", type(wrap_optimizer(keras.optimizers.SGD())))
        assert self.compiled() is not keras.optimizers.LossScaleOptimizer

    def test_a_policy_of_another_name_switches_scaling_off_altogether(self, mixed_float16: None) -> None:
        class Renamed(keras.DTypePolicy):  # type: ignore[misc, name-defined]
            @property
            def name(self) -> str:
                return "hwprobe_mixed_float16"

        keras.config.set_dtype_policy(Renamed("mixed_float16"))
        assert self.compiled() is keras.optimizers.SGD

"""Benches that really run, on the CPU; and on a machine of ours, where no kernel can, the choice of the device."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hwprobe.bench.facts import POLICY_MODES, Bench, Measurement, Mode, is_wrong
from hwprobe.bench.kernels import KERNELS, Kernel
from hwprobe.bench.running import QUICK_LIMIT_BYTES, bench, quick
from hwprobe.bench.timing import has_tf32, measure_kernel
from hwprobe.cli.bench import bench as command
from hwprobe.errors import InputError
from hwprobe.probe.child import ask
from hwprobe.serialize import from_builtins, from_json
from hwprobe.source import SourceStatus
from tests.machine import Machine

tf = pytest.importorskip("tensorflow")


@pytest.fixture(scope="module")
def measured() -> Bench:
    """The quick form on this machine's CPU."""
    return bench("CPU:0", seconds=1.0, quick=True)


def test_every_kernel_runs_in_every_mode_on_the_device_that_was_asked_for(measured: Bench) -> None:
    assert {(seen.kernel, seen.mode) for seen in measured.measurements} == {
        (kernel.name, mode) for kernel in KERNELS for mode in ("float32", "float16", "bfloat16")
    }
    assert {seen.ran_on for seen in measured.measurements} == {"CPU:0"}
    assert [seen.error for seen in measured.measurements if seen.error] == []


def test_every_result_is_right_within_its_rounding(measured: Bench) -> None:
    assert [(seen.kernel, seen.mode) for seen in measured.measurements if is_wrong(seen)] == []
    products: dict[Mode, Any] = {
        seen.mode: seen.relative_error for seen in measured.measurements if seen.kernel == "matmul"
    }
    assert products["float32"] < products["float16"] < products["bfloat16"]


def test_times_are_set_against_float32_in_turns(measured: Bench) -> None:
    assert measured.baseline == "float32"
    for seen in measured.measurements:
        assert seen.seconds is not None
        assert seen.seconds > 0.0
        assert seen.ratio is not None
        assert seen.ratio.low <= seen.ratio.median <= seen.ratio.high
        if seen.mode == "float32":
            assert seen.ratio.median == 1.0
    assert all((measured.policy_ratio(policy) or 0.0) > 0.0 for policy in POLICY_MODES)


def test_settings_are_put_back() -> None:
    before = (tf.config.get_soft_device_placement(), tf.config.experimental.tensor_float_32_execution_enabled())
    bench("CPU:0", seconds=0.2, quick=True)
    after = (tf.config.get_soft_device_placement(), tf.config.experimental.tensor_float_32_execution_enabled())
    assert after == before


def _kernel(compute: Callable[..., Any], sizes: tuple[int, ...] = (8, 16)) -> Kernel:
    return Kernel(
        name="matmul",
        sizes=sizes,
        shapes=lambda n: [(n, n), (n, n)],
        kept_in_float32=(),
        compute=compute,
        words=str,
    )


def _measure(compute: Callable[..., Any], **options: Any) -> dict[Mode, Measurement]:
    measured = measure_kernel(
        _kernel(compute),
        ("float32", "float16"),
        "float32",
        "CPU:0",
        **{"budget_seconds": 0.1, "limit_bytes": 2**20, **options},
    )
    return {seen.mode: seen for seen in measured}


def test_a_kernel_that_is_missing_in_one_mode_leaves_the_others() -> None:
    # TensorFlow 2.21 has no float16 kernel of MaxPool3D for the CPU, and for float64 no such operation.
    def pool(left: Any, right: Any) -> Any:
        left = tf.cast(left, tf.float32) if left.dtype == tf.float64 else left
        return tf.nn.max_pool3d(tf.reshape(left, (1, 4, 4, -1, 1)), 2, 2, "SAME")

    seen = _measure(pool)
    assert seen["float16"].error is not None
    assert "No OpKernel was registered to support Op 'MaxPool3D'" in seen["float16"].error
    assert "\n" not in seen["float16"].error
    assert seen["float16"].ratio is None
    assert seen["float32"].error is None
    assert seen["float32"].ratio is not None
    assert seen["float32"].ratio.median == 1.0


def test_a_wrong_result_is_measured_against_float64() -> None:
    def wrong(left: Any, right: Any) -> Any:
        return tf.matmul(left, right) * (2.0 if left.dtype == tf.float16 else 1.0)

    seen = _measure(wrong)
    assert is_wrong(seen["float16"])
    assert seen["float16"].relative_error == pytest.approx(1.0, rel=0.01)
    assert not is_wrong(seen["float32"])


def test_results_that_are_not_finite_are_counted() -> None:
    def infinite(left: Any, right: Any) -> Any:
        return tf.matmul(left, right) * (60000.0 if left.dtype == tf.float16 else 1.0)

    assert _measure(infinite)["float16"].non_finite == 64


def test_the_size_stays_within_the_memory_limit() -> None:
    assert _measure(tf.matmul, limit_bytes=8 * 8 * 4 * 4)["float32"].size == "8"
    assert _measure(tf.matmul, budget_seconds=30.0 * 3, limit_bytes=16 * 16 * 4 * 4 + 1)["float32"].size == "16"


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_smallest_size_of_a_kernel_fits_the_quick_form(kernel: Kernel) -> None:
    assert kernel.bytes_at(kernel.sizes[0]) <= QUICK_LIMIT_BYTES
    assert list(kernel.sizes) == sorted(kernel.sizes)


@pytest.mark.parametrize(("capability", "has"), [((7, 5), False), ((8, 0), True), ((12, 0), True), (None, False)])
def test_tf32_exists_from_8_0(capability: tuple[int, int] | None, has: bool) -> None:
    assert has_tf32(capability) is has


def test_a_device_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"device 'GPU:7' is not there: this process may use CPU:0"):
        bench("GPU:7")


def test_the_quick_form_is_marked_as_such() -> None:
    assert quick("CPU:0").quick


def test_the_child_answers_with_a_bench() -> None:
    answer = ask("hwprobe.bench.child:read", {"device": "CPU:0", "seconds": 0.5}, timeout_seconds=300.0)
    assert answer.status is SourceStatus.OK, answer.reason
    assert from_builtins(answer.data, Bench).device == "CPU:0"


def test_the_child_says_when_the_device_is_not_there() -> None:
    answer = ask("hwprobe.bench.child:read", {"device": "GPU:7"}, timeout_seconds=300.0)
    assert answer.status is SourceStatus.ABSENT
    assert answer.reason is not None
    assert "GPU:7" in answer.reason


def test_the_command_prints_a_table_and_writes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    result = CliRunner().invoke(command, ["--device", "CPU:0", "--quick", "--output", str(path)])
    assert result.exit_code == 0, result.output
    assert "mixed_bfloat16:" in result.stdout
    assert "quick bench of CPU:0" in result.stdout
    assert from_json(path.read_text(encoding="utf-8"), Bench).quick


def test_json_stands_alone_on_standard_output() -> None:
    result = CliRunner().invoke(command, ["--device", "CPU:0", "--seconds", "0.5", "--format", "json"])
    assert json.loads(result.stdout)["schema"] == "hwprobe.bench/1"


CHOOSE = """
import sys
import tensorflow as tf
from hwprobe.bench.running import _choose
chosen = _choose(tf, sys.argv[1] if len(sys.argv) > 1 else None)
print(chosen.listed, chosen.logical, chosen.description, chosen.compute_capability)
print(*[gpu.name for gpu in tf.config.list_logical_devices("GPU")])
"""


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        ([], "GPU:0 GPU:0 NVIDIA A100-SXM4-80GB (8, 0)"),
        (["GPU:1"], "GPU:1 GPU:0 Tesla T4 (7, 5)"),
    ],
)
def test_only_the_chosen_gpu_is_touched(machine: Callable[..., Machine], wanted: list[str], answer: str) -> None:
    from tests.machine import A100, T4

    ours = machine(gpus=[T4, A100])
    done = ours.run([sys.executable, "-c", CHOOSE, *wanted], timeout=300)
    assert done.returncode == 0, done.stderr
    first, logical = done.stdout.splitlines()
    assert first == answer
    assert logical == "/device:GPU:0"

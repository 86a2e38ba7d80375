"""Two real workers on loopback under MultiWorkerMirroredStrategy: they agree, train, and notice one that strays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from hwprobe.cluster.merge import merge
from hwprobe.cluster.plan import Plan, plan_to_json
from tests.cluster.records import cpu, t4
from tests.machine import A100, T4, Machine
from tests.ports import free_ports

LIMIT_SECONDS = 300


class Ended:
    """What a worker said until its end."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status = status
        self.errors = errors
        self.said = dict(line.split(": ", 1) for line in output.splitlines() if ": " in line)


def run_workers(
    source: str,
    environments: Sequence[Mapping[str, str]],
    *,
    ports: Sequence[int] | None = None,
    limit: int = LIMIT_SECONDS,
) -> list[Ended]:
    """Run one worker for each environment. Whoever is left at the limit is killed: TensorFlow ignores SIGTERM while it
    waits for other workers."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports or free_ports(len(environments))]}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", source],
            env={
                **environment,
                "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}}),
                "TF_CPP_MIN_LOG_LEVEL": "2",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for index, environment in enumerate(environments)
    ]
    ended = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=limit)
            ended.append(Ended(process.returncode, output, errors))
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ended


def on_cpu() -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("HWPROBE", "SLURM", "OMPI", "PMI"))
    }
    return kept | {"CUDA_VISIBLE_DEVICES": "-1", "HWPROBE_AGREEMENT_TIMEOUT": "200"}


BEGINNING = """
import os, sys, json
import hwprobe
applied = hwprobe.auto_configure(quiet=True)
print("origin:", applied.decision.origin)
print("reasons:", applied.decision.reasons[0])
import tensorflow as tf
assert hwprobe.auto_configure(quiet=True).decision == applied.decision
strategy = tf.distribute.MultiWorkerMirroredStrategy()
print("replicas:", strategy.num_replicas_in_sync)
print("verified:", bool(hwprobe.verify(strategy)))
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
"""

END = """
if worker == 1:
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
try:
    hwprobe.verify(strategy)
    print("afterwards: nobody noticed")
except hwprobe.AgreementError as error:
    print("afterwards:", error)
"""

WITH_TF_KERAS = """
import tf_keras as keras
print("policy:", keras.mixed_precision.global_policy().name)
with strategy.scope():
    model = keras.Sequential([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
tf.random.set_seed(1)
data = tf.data.Dataset.from_tensor_slices((tf.random.normal([64, 4]), tf.random.normal([64, 1]))).batch(16)
history = model.fit(data, epochs=1, verbose=0)
print("weights:", float(sum(tf.reduce_sum(tf.abs(weight)) for weight in model.trainable_weights)))
"""

WITH_KERAS_3 = """
import keras
print("policy:", keras.mixed_precision.global_policy().name)
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build(model.trainable_variables)
data = tf.random.normal([16, 4], seed=1)

@tf.function
def step():
    def on_replica():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(data, training=True)))
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        for variable, gradient in zip(model.trainable_variables, gradients):
            variable.assign_sub(0.1 * gradient)
    strategy.run(on_replica)

for _ in range(3):
    step()
weights = [strategy.experimental_local_results(weight.value)[0] for weight in model.trainable_variables]
print("weights:", float(sum(tf.reduce_sum(tf.abs(weight)) for weight in weights)))
"""


@pytest.mark.parametrize("training", [WITH_TF_KERAS, WITH_KERAS_3], ids=["tf_keras fit", "Keras 3 loop"])
def test_two_workers_agree_train_and_notice_a_policy_set_by_hand(training: str) -> None:
    ended = run_workers(BEGINNING + training + END, [on_cpu(), on_cpu()])
    for worker in ended:
        assert worker.status == 0, worker.errors[-3000:]
        assert worker.said["origin"] == "plan"
        assert "agreed for 2 workers on" in worker.said["reasons"]
        assert (worker.said["replicas"], worker.said["verified"], worker.said["policy"]) == ("2", "True", "float32")
        assert "the replicas of this job do not have the same precision" in worker.said["afterwards"]
        assert "mixed_bfloat16" in worker.said["afterwards"]
        assert "worker-0" in worker.said["afterwards"]
        assert "worker-1" in worker.said["afterwards"]
    assert ended[0].said["weights"] == ended[1].said["weights"]


WITHOUT_STRATEGY = """
import hwprobe
applied = hwprobe.auto_configure(quiet=True)
import tensorflow as tf, keras
from tensorflow.python.eager import context
print("policy:", keras.mixed_precision.global_policy().name)
print("scaling:", applied.decision.loss_scaling.mode)
print("growth:", [tf.config.experimental.get_memory_growth(gpu) for gpu in tf.config.list_physical_devices("GPU")])
print("initialized:", bool(context.context()._initialized))
"""


def test_a_t4_here_and_an_a100_there_take_the_one_policy(machine: Callable[..., Machine]) -> None:
    machines = [machine([T4]), machine([A100, A100])]
    ended = run_workers(
        WITHOUT_STRATEGY,
        [one.environment(HWPROBE_SECRET="of this job", HWPROBE_AGREEMENT_TIMEOUT="200") for one in machines],
    )
    for worker, gpus in zip(ended, (1, 2), strict=True):
        assert worker.status == 0, worker.errors[-3000:]
        assert worker.said == {
            "policy": "mixed_float16",
            "scaling": "dynamic",
            "growth": str([True] * gpus),
            "initialized": "False",
        }


MISSING = """
import sys
import hwprobe
try:
    hwprobe.auto_configure(quiet=True)
except hwprobe.AgreementError as error:
    print("error:", error)
print("imported:", "tensorflow" in sys.modules)
"""


def test_a_worker_that_does_not_come_is_named_before_tensorflow_is_imported() -> None:
    ports = free_ports(2)
    (chief,) = run_workers(MISSING, [on_cpu() | {"HWPROBE_AGREEMENT_TIMEOUT": "1"}], ports=ports)
    assert f"1 of 2 workers did not come within 1 s: worker-1 (127.0.0.1:{ports[1]})" in chief.said["error"]
    assert chief.said["imported"] == "False"


MIRRORED = """
import hwprobe
hwprobe.auto_configure(quiet=True)
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategies = {
    "mirrored": tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
    "one": tf.distribute.OneDeviceStrategy("CPU:0"),
    "none": tf.distribute.get_strategy(),
}
for name, strategy in strategies.items():
    print(name + ":", strategy.num_replicas_in_sync, bool(hwprobe.verify(strategy)))
# Made without its constructor, which would look for the other tasks.
asynchronous = object.__new__(tf.distribute.ParameterServerStrategy)
try:
    hwprobe.verify(asynchronous)
except hwprobe.UnsupportedError as error:
    print("asynchronous:", error)
"""


def test_strategies_within_one_process_are_verified() -> None:
    done = subprocess.run(
        [sys.executable, "-c", MIRRORED], env=on_cpu(), capture_output=True, text=True, timeout=LIMIT_SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *synchronous, asynchronous = done.stdout.splitlines()
    assert synchronous == ["mirrored: 2 True", "one: 1 True", "none: 1 True"]
    assert "give every task the same plan (HWPROBE_PLAN)" in asynchronous


SCRIPT = """
import os
os.chdir("/")
import keras
print("policy:", keras.mixed_precision.global_policy().name)
"""


def run_script(folder: Path, plan: Plan) -> subprocess.CompletedProcess[str]:
    (folder / "plan.json").write_text(plan_to_json(plan))
    (folder / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "-m", "hwprobe", "run", "--plan", "plan.json", "script.py"],
        cwd=folder,
        env=on_cpu() | {"SLURMD_NODENAME": "n1"},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )


def test_a_script_runs_with_the_plan_that_the_command_names(tmp_path: Path) -> None:
    done = run_script(tmp_path, merge([t4("n1"), cpu("n2")]))
    assert (done.returncode, done.stdout) == (0, "policy: float32\n"), done.stderr


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (merge([t4("n1"), t4("n2")]), "it asks for mixed_float16"),
        (merge([t4("n9")]), "this node, n1, is not in it"),
        (merge([t4("n1")], expect=2), "the job must not start"),
    ],
)
def test_a_script_does_not_go_on_where_its_plan_is_refused(tmp_path: Path, plan: Plan, says: str) -> None:
    done = run_script(tmp_path, plan)
    assert (done.returncode, done.stdout) == (1, "")
    assert "plan.json is refused and nothing was applied" in done.stderr
    assert says in done.stderr

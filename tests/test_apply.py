"""What `auto_configure` writes into the real TensorFlow, and whether `verify` tells the truth about it.

The test machine notes every allocation of device memory: what TensorFlow takes at its first tensor shows which memory
settings were in force, whatever its getters say.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.applying import TOOLS, MakeMachine, sources
from tests.machine import A100, T4, Case, Gpu, python_in_forks

MIB = 1 << 20
AT_ONCE = 15360 - 1050
"""Of a T4 with nothing on it: its memory less TensorFlow's reserve at capability 7, in MiB."""

CONFIGURE = """
applied = configure({arguments})
left_down = not context.context()._initialized
{after}
verified = hwprobe.verify()
print(json.dumps({{
    "growth": statuses(applied, "memory_growth"),
    "limit": statuses(applied, "memory_limit"),
    "complete": applied.complete,
    "in_force": bool(verified),
    "left_down": left_down,
    "errors": errors(applied.steps),
    "lost": errors(verified.steps),
}}))
touch()
"""


class Row(NamedTuple):
    """What a script does before and after, and what must come out.

    Attributes:
        before: Source before the call.
        after: Source after it.
        arguments: Of the call.
        growth: What the steps about memory growth say.
        in_force: What `verify` says.
        taken: MiB that TensorFlow takes at its first tensor.
        says: Part of the errors of the steps.
        lost: Part of what `verify` says is lost.
    """

    before: str = ""
    after: str = ""
    arguments: str = ""
    variables: Mapping[str, str] = {}
    gpus: Sequence[Gpu] = (T4,)
    growth: str = "changed"
    in_force: bool = True
    taken: int = 2
    says: str = ""
    lost: str = ""


FORCE = "TF_FORCE_GPU_ALLOW_GROWTH"
SOME_LOGICAL_CPUS = "limit(cpus()[0], None, None)"
GROWTH = {
    "nothing else was said": Row(),
    "the same was said before": Row("configure()", growth="unchanged"),
    "the script has set it": Row("tf.config.experimental.set_memory_growth(gpus()[0], True)", growth="unchanged"),
    "the script has set it on one of two": Row(
        "tf.config.experimental.set_memory_growth(gpus()[1], True)", gpus=(T4, T4)
    ),
    "it is not wanted": Row(arguments="memory_growth=False", growth="unchanged", taken=AT_ONCE),
    "it is not wanted any more": Row("configure()", arguments="memory_growth=False", taken=AT_ONCE),
    "the environment says the same": Row(variables={FORCE: "true"}, growth="unchanged"),
    "the environment forces it on": Row(
        arguments="memory_growth=False",
        variables={FORCE: "true"},
        growth="skipped",
        in_force=False,
        says=f"{FORCE}=true is kept",
        lost=f"{FORCE}=true: growth is on",
    ),
    "the environment forces it off": Row(
        variables={FORCE: "false"},
        growth="skipped",
        in_force=False,
        taken=AT_ONCE,
        says=f"{FORCE}=false is kept",
        lost=f"{FORCE}=false: TensorFlow takes nearly all",
    ),
    "the environment says what TensorFlow does not understand": Row(variables={FORCE: "1"}),
    "the GPU has a logical device": Row(
        "limit(gpus()[0], 1024)",
        growth="skipped",
        in_force=False,
        taken=1024,
        says="a logical device configuration on GPU:0 sets a limit, which is kept",
        lost="not set",
    ),
    "one of two GPUs has logical devices": Row(
        "limit(gpus()[0], 512, 512)", gpus=(T4, T4), growth="skipped", in_force=False, taken=512
    ),
    "the CPU has logical devices, which cancel it": Row(SOME_LOGICAL_CPUS),
    "the same a second time": Row(f"{SOME_LOGICAL_CPUS}\nconfigure()", growth="unchanged"),
    "the CPU has logical devices, and it is not wanted any more": Row(
        f"{SOME_LOGICAL_CPUS}\nconfigure()", arguments="memory_growth=False", growth="unchanged", taken=AT_ONCE
    ),
    "the CPU gets logical devices afterwards": Row(
        after=SOME_LOGICAL_CPUS, in_force=False, taken=AT_ONCE, lost="cancelled by the logical devices of CPU:0"
    ),
    "the GPU gets a logical device afterwards": Row(
        after="limit(gpus()[0], 1024)",
        in_force=False,
        taken=1024,
        lost="cancelled by the logical devices of GPU:0; only TF_FORCE_GPU_ALLOW_GROWTH=true",
    ),
    "TensorFlow is initialised": Row(
        "touch()", growth="too_late", in_force=False, taken=AT_ONCE, says="was initialised before", lost="not set"
    ),
    "TensorFlow is initialised by a list of logical devices": Row(
        "tf.config.list_logical_devices()", growth="too_late", in_force=False, taken=AT_ONCE
    ),
    "TensorFlow is initialised, and the script has set it before": Row(
        "tf.config.experimental.set_memory_growth(gpus()[0], True)\ntouch()", growth="unchanged"
    ),
    "the devices were listed by device_lib": Row(
        "device_lib.list_local_devices()",
        growth="too_late",
        in_force=False,
        taken=AT_ONCE,
        says="made its GPU devices before growth was set",
        lost="made without growth",
    ),
    "the devices were made by tf.test, and it is called twice": Row(
        "tf.test.gpu_device_name()\nconfigure()", growth="too_late", in_force=False, taken=AT_ONCE
    ),
    "the devices are listed by device_lib afterwards": Row(
        after="device_lib.list_local_devices()", in_force=False, taken=AT_ONCE, lost="made without growth"
    ),
    "another GPU was hidden": Row("tf.config.set_visible_devices(gpus()[1:], 'GPU')", gpus=(T4, T4)),
    "one that is not the first grows only where it is": Row(
        "tf.config.set_visible_devices(gpus()[:1], 'GPU')", gpus=(T4, T4)
    ),
}


def run(make: MakeMachine, rows: Mapping[str, Row], folder: Path | None = None) -> list[dict[str, Any]]:
    """Runs every row in a process of its own, checks what all rows share, and gives what each said."""
    cases = [
        Case(
            make(gpus=row.gpus),
            f"{TOOLS}\n{row.before}\n{CONFIGURE.format(arguments=row.arguments, after=row.after)}",
            {**row.variables, **({"FOLDER": str(folder)} if folder else {})},
        )
        for row in rows.values()
    ]
    said = []
    for (name, row), case, end in zip(rows.items(), cases, python_in_forks(cases), strict=True):
        assert end.returncode == 0, f"{name}: {end.stderr[-2000:]}"
        answer = json.loads(end.stdout)
        answer["taken"] = case.machine.allocations[0] // MIB
        assert (name, answer["in_force"], answer["taken"]) == (name, row.in_force, row.taken), answer
        assert row.says in answer["errors"], name
        assert row.lost in answer["lost"], name
        said.append(answer)
    return said


def test_memory_growth_is_in_force_or_the_reason_is_told(machine: MakeMachine) -> None:
    for (name, row), answer in zip(GROWTH.items(), run(machine, GROWTH), strict=True):
        assert (name, answer["growth"]) == (name, [row.growth])
        assert answer["complete"] is (row.growth != "too_late"), name
        assert answer["left_down"] is not ("touch()" in row.before or "logical_devices" in row.before), name


def policy(text: str) -> str:
    return f"policy=os.environ['FOLDER'] + '/{text}.toml'"


LIMITS = {
    "a limit with growth": Row(arguments=policy("limit"), growth="changed"),
    "the same a second time": Row(f"configure({policy('limit')})", arguments=policy("limit"), growth="unchanged"),
    "a limit without growth is taken at once": Row(arguments=policy("limit-at-once"), growth="", taken=64),
    "growth is given up later": Row(
        f"configure({policy('limit')})", arguments=policy("limit-at-once"), growth="", taken=64
    ),
    "the environment forbids growth": Row(
        arguments=policy("limit"),
        variables={FORCE: "false"},
        growth="skipped",
        in_force=False,
        taken=64,
        says=f"{FORCE}=false is kept",
    ),
    "the script has another limit": Row(
        "limit(gpus()[0], 128)",
        arguments=policy("limit"),
        growth="",
        in_force=False,
        taken=128,
        says="a logical device configuration exists already and is kept",
        lost="the limit is 128 MiB",
    ),
    "it is too late": Row(
        "touch()", arguments=policy("limit"), growth="", in_force=False, taken=AT_ONCE, says="was initialised before"
    ),
    "the devices exist already": Row(
        "tf.test.gpu_device_name()",
        arguments=policy("limit"),
        growth="",
        in_force=False,
        taken=AT_ONCE,
        says="made its GPU devices before",
    ),
}


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """A folder with policies."""
    head = 'schema = "hwprobe.policy/1"\nname = "test"\n'
    texts = {
        "limit": "[memory]\nlimit_mib = 64\n",
        "limit-at-once": "[memory]\nlimit_mib = 64\ngrowth = false\n",
        "allocator": '[memory]\nallocator = "cuda_malloc_async"\n',
        "no-tf32": "[precision]\ntf32 = false\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(head + text)
    return tmp_path


def test_a_limit_holds_with_growth_and_without(machine: MakeMachine, policies: Path) -> None:
    for (name, row), answer in zip(LIMITS.items(), run(machine, LIMITS, policies), strict=True):
        assert (name, answer["growth"]) == (name, [row.growth] if row.growth else [])
        assert answer["complete"] is (answer["limit"] != ["too_late"]), name


OTHERS = {
    "what is above a limit is refused, what is below is given": """
        configure(policy=FOLDER + "/limit.toml")
        touch(16)
        try:
            touch(128)
        except tf.errors.OpError as error:
            print("Dst tensor is not initialized" in str(error))
    """,
    "the asynchronous allocator is asked for before it is too late": """
        applied = configure(policy=FOLDER + "/allocator.toml")
        step = applied.step("allocator")
        print(step.status, step.before, os.environ["TF_GPU_ALLOCATOR"], bool(hwprobe.verify()))
        again = configure(policy=FOLDER + "/allocator.toml").step("allocator")
        configure()
        print(again.status, os.environ.get("TF_GPU_ALLOCATOR"))
    """,
    "an allocator that was chosen is kept": """
        os.environ["TF_GPU_ALLOCATOR"] = "cuda_malloc"
        applied = configure(policy=FOLDER + "/allocator.toml")
        print(applied.step("allocator").status, applied.complete, bool(hwprobe.verify()))
    """,
    "an allocator that comes too late": """
        touch()
        applied = configure(policy=FOLDER + "/allocator.toml")
        print(applied.step("allocator").status, os.environ.get("TF_GPU_ALLOCATOR"), bool(hwprobe.verify()))
    """,
    "TensorFloat-32 is switched off and on, also late": """
        enabled = tf.config.experimental.tensor_float_32_execution_enabled
        off = configure(policy=FOLDER + "/no-tf32.toml").step("tf32").status
        print(off, enabled(), bool(hwprobe.verify()))
        touch()
        print(configure().step("tf32").status, enabled(), bool(hwprobe.verify()))
        tf.config.experimental.enable_tensor_float_32_execution(False)
        print([step.setting for step in hwprobe.verify().steps if step.status == "lost"])
    """,
    "growth is set on every GPU or on none": """
        setter, refused = tf.config.experimental.set_memory_growth, gpus()[1]
        def refusing(gpu, value):
            if gpu == refused:
                raise ValueError("not this one")
            setter(gpu, value)
        tf.config.experimental.set_memory_growth = refusing
        applied = configure()
        print(statuses(applied, "memory_growth"), applied.complete, applied.step("memory_growth").error)
        print([bool(tf.config.experimental.get_memory_growth(gpu)) for gpu in gpus()], bool(hwprobe.verify()))
        print(tf.keras.mixed_precision.global_policy().name)
    """,
    "strict raises when the rest is done": """
        touch()
        try:
            configure(strict=True)
        except hwprobe.ApplyError as error:
            print(str(error)[:57])
        print(tf.keras.mixed_precision.global_policy().name)
        print([step.setting for step in hwprobe.verify().steps if step.status == "lost"])
    """,
    "what came too late is a warning on standard error": """
        touch()
        hwprobe.auto_configure(quiet=True)
        print("done")
    """,
}
SAID = {
    "what is above a limit is refused, what is below is given": ["True"],
    "the asynchronous allocator is asked for before it is too late": [
        "changed None cuda_malloc_async True",
        "unchanged None",
    ],
    "an allocator that was chosen is kept": ["skipped True False"],
    "an allocator that comes too late": ["too_late None False"],
    "TensorFloat-32 is switched off and on, also late": [
        "changed False True",
        "changed True True",
        "['tf32']",
    ],
    "growth is set on every GPU or on none": ["['failed'] False not this one", "[False, False] False", "mixed_float16"],
    "strict raises when the rest is done": [
        "memory_growth of GPU:0: TensorFlow was initialised before",
        "mixed_float16",
        "['memory_growth', 'memory_growth']",
    ],
    "what came too late is a warning on standard error": ["done"],
}


def test_what_else_is_set_is_set_and_read_back(machine: MakeMachine, policies: Path) -> None:
    tools = f"{TOOLS}\nFOLDER = {str(policies)!r}"
    cases = [Case(machine(gpus=[T4, T4]), sources(tools, source)) for source in OTHERS.values()]
    ends = dict(zip(OTHERS, python_in_forks(cases), strict=True))
    assert {name: end.stdout.splitlines() for name, end in ends.items()} == SAID, ends
    late = ends["what came too late is a warning on standard error"].stderr
    assert "hwprobe: warning: memory_growth of GPU:0 was not set: TensorFlow was initialised before hwprobe" in late


NEXT_LINES = {
    "a mirrored strategy": """
        strategy = tf.distribute.MirroredStrategy()
        print(strategy.num_replicas_in_sync)
    """,
    "a strategy of several workers, of which this is the only one": """
        os.environ["TF_CONFIG"] = json.dumps(
            {"cluster": {"worker": [f"127.0.0.1:{PORT}"]}, "task": {"type": "worker", "index": 0}})
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        print(strategy.num_replicas_in_sync)
    """,
    "logical devices": """
        limit(gpus()[0], 512, 512)
        print(len(tf.config.list_logical_devices("GPU")))
    """,
    "other visible devices": """
        tf.config.set_visible_devices(gpus()[1:], "GPU")
        print(len(tf.config.list_logical_devices("GPU")))
    """,
    "threads": """
        tf.config.threading.set_intra_op_parallelism_threads(1)
        print(tf.config.threading.get_intra_op_parallelism_threads())
    """,
}


def test_the_next_line_of_a_script_still_works(machine: MakeMachine) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tools = f"{TOOLS}\nPORT = {port}\nassert configure().complete\nassert not context.context()._initialized"
    cases = [Case(machine(gpus=[T4, T4]), sources(tools, source)) for source in NEXT_LINES.values()]
    ends = python_in_forks(cases)
    assert [end.stdout.strip() for end in ends] == ["2", "2", "3", "1", "1"], [end.stderr[-800:] for end in ends]


def test_a_hidden_gpu_limits_nothing(machine: MakeMachine) -> None:
    hide = "tf.config.set_visible_devices({}, 'GPU')\nprint(configure().decision.dtype_policy)"
    kept = {"gpus()": "mixed_float16", "gpus()[:1]": "mixed_bfloat16", "gpus()[1:]": "mixed_float16", "[]": "float32"}
    cases = [Case(machine(gpus=[T4, A100]), sources(TOOLS, hide.format(which))) for which in kept]
    ends = python_in_forks(cases)
    assert [end.stdout.strip() for end in ends] == list(kept.values()), [end.stderr[-800:] for end in ends]

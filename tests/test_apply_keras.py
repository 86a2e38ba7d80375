"""The dtype policy that `auto_configure` sets, in every Keras of the process, and what takes it away."""

from __future__ import annotations

import textwrap

from tests.applying import TOOLS, MakeMachine, sources
from tests.machine import T4, Case, python_in_forks

KERAS = {
    "the policy of Keras 3": """
        configure()
        print(tf.keras.mixed_precision.global_policy().name, tf.keras.config.dtype_policy().name)
        print(bool(hwprobe.verify()))
    """,
    "a session that is cleared drops it": """
        configure()
        tf.keras.utils.clear_session()
        print(bool(hwprobe.verify()), [step.subject for step in hwprobe.verify().steps if step.status == "lost"])
        print(configure().step("dtype_policy").status, bool(hwprobe.verify()))
    """,
    "another thread does not have it": """
        configure()
        found = []
        thread = threading.Thread(target=lambda: found.append(bool(hwprobe.verify())))
        thread.start(); thread.join()
        print(found, bool(hwprobe.verify()))
    """,
    "a thread that is not the main one is warned": """
        thread = threading.Thread(target=hwprobe.auto_configure, name="loader")
        thread.start(); thread.join()
        print(hwprobe.verify().in_force)
    """,
    "it is switched by the script": """
        configure()
        tf.keras.mixed_precision.set_global_policy("float32")
        print(bool(hwprobe.verify()), hwprobe.verify().steps[-1].before)
    """,
    "tf_keras that comes later has it too": """
        applied = configure()
        print(applied.step("dtype_policy", "tf_keras").status)
        import tf_keras
        print(tf_keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))
        tf_keras.mixed_precision.set_global_policy("float32")
        print([step.subject for step in hwprobe.verify().steps if step.status == "lost"])
    """,
    "tf_keras that comes later has what was said last": """
        configure()
        configure(dtype_policy="float32")
        import tf_keras
        print(tf_keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))
    """,
    "tf_keras that came before has it too": """
        import tf_keras
        applied = configure()
        print([[step.subject, step.status] for step in applied.steps if step.setting == "dtype_policy"])
        print(tf_keras.mixed_precision.global_policy().name, tf.keras.mixed_precision.global_policy().name)
    """,
    "twice with other arguments": """
        configure(dtype_policy="mixed_float16")
        configure(dtype_policy="float32", memory_growth=False)
        print(tf.keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))
        touch()
        configure(dtype_policy="mixed_float16", memory_growth=True)
        print(tf.keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))
    """,
}
KERAS_SAID = {
    "the policy of Keras 3": ["mixed_float16 mixed_float16", "True"],
    "a session that is cleared drops it": ["False ['keras']", "changed True"],
    "another thread does not have it": ["[False] True"],
    "a thread that is not the main one is warned": ["False"],
    "it is switched by the script": ["False float32"],
    "tf_keras that comes later has it too": ["skipped", "mixed_float16 True", "['tf_keras']"],
    "tf_keras that comes later has what was said last": ["float32 True"],
    "tf_keras that came before has it too": [
        "[['keras', 'changed'], ['tf_keras', 'changed']]",
        "mixed_float16 mixed_float16",
    ],
    "twice with other arguments": ["float32 True", "mixed_float16 False"],
}


def test_every_keras_has_the_policy_and_what_takes_it_away_is_seen(machine: MakeMachine) -> None:
    cases = [Case(machine(gpus=[T4]), sources(TOOLS, source)) for source in KERAS.values()]
    ends = dict(zip(KERAS, python_in_forks(cases), strict=True))
    assert {name: end.stdout.splitlines() for name, end in ends.items()} == KERAS_SAID, [
        end.stderr[-800:] for end in ends.values() if end.returncode
    ]
    warned = ends["a thread that is not the main one is warned"].stderr
    assert "hwprobe: warning: set for the thread 'loader' alone" in warned
    assert "alone" not in ends["another thread does not have it"].stderr


LEGACY = {"TF_USE_LEGACY_KERAS": "1"}
WITHOUT_TF_KERAS = "import sys\nsys.modules['tf_keras'] = None"


def test_the_legacy_keras_is_tf_keras_or_its_absence_is_said(machine: MakeMachine) -> None:
    with_it = """
        configure()
        import tf_keras
        print(tf.keras.mixed_precision.global_policy().name, tf_keras.mixed_precision.global_policy().name)
        import keras
        print(keras.config.dtype_policy().name, bool(hwprobe.verify()))
    """
    without_it = """
        applied = hwprobe.auto_configure()
        step = applied.step("dtype_policy", "tf.keras")
        print(step.status, applied.complete, bool(hwprobe.verify()))
        print([bool(tf.config.experimental.get_memory_growth(gpu)) for gpu in gpus()])
        try:
            configure(strict=True)
        except hwprobe.ApplyError as error:
            print(str(error)[:40])
    """
    m = machine(gpus=[T4])
    present = m.python(sources(TOOLS, with_it), timeout=300, **LEGACY)
    absent = m.python(sources(WITHOUT_TF_KERAS, TOOLS, without_it), timeout=300, **LEGACY)
    assert present.stdout.splitlines() == ["mixed_float16 mixed_float16", "mixed_float16 True"], present.stderr
    assert absent.stdout.splitlines() == ["failed False False", "[True]", "dtype_policy of tf.keras: TF_USE_LEGACY_"]
    assert "hwprobe: warning: dtype_policy of tf.keras was not set: TF_USE_LEGACY_KERAS is set and" in absent.stderr
    assert "Traceback" not in absent.stderr


def test_the_line_says_what_compile_has_to_be_given_for_the_scaling_that_was_decided(machine: MakeMachine) -> None:
    """Keras 3's own compile scales the loss in its own way under mixed_float16, whatever was decided."""
    source = """
        import hwprobe
        for scaling in ("dynamic", "static=128", "none"):
            hwprobe.auto_configure(dtype_policy="mixed_float16", loss_scaling=scaling)
        hwprobe.auto_configure(dtype_policy="float32")
    """
    end = machine(gpus=[T4]).python(textwrap.dedent(source), TF_CPP_MIN_LOG_LEVEL="3")
    lines = [line for line in end.stderr.splitlines() if line.startswith(("hwprobe: mixed", "hwprobe: float"))]
    wrapped = ["give compile() hwprobe.wrap_optimizer(optimizer)" in line for line in lines]
    assert wrapped == [True, True, False, False], end.stderr
    assert ["auto_scale_loss=False" in line for line in lines] == [False, False, True, False], end.stderr

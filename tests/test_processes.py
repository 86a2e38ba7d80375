"""`auto_configure` in processes that are not one plain script: whatever happens, `verify` describes it truthfully."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machine import T4, Case, Machine, python_in_forks

MakeMachine = Callable[..., Machine]
ROOT = Path(__file__).parents[1]
GENEROUS = 300

TOOLS = """
import json, os, signal, sys, threading, time
import hwprobe

def configure(**arguments):
    return hwprobe.auto_configure(quiet=True, **arguments)

def truth():
    import tensorflow as tf
    growth = [bool(tf.config.experimental.get_memory_growth(gpu)) for gpu in tf.config.list_physical_devices("GPU")]
    return growth, tf.keras.mixed_precision.global_policy().name

def lost():
    return sorted({step.setting for step in hwprobe.verify().steps if step.status == "lost"})
"""

AT_ONCE = """
# The first of them imports TensorFlow.
said, gate = {}, threading.Barrier(8)

def one(number):
    gate.wait()
    applied = configure()
    said[number] = (applied.complete, truth(), bool(hwprobe.verify()))

threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(set(map(str, said.values())), len(said))
print(lost(), configure().complete, lost(), truth())
"""

FORKED = """
configure()

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(100)
        work()
        sys.stdout.flush()
        os._exit(0)
    return os.waitpid(child, 0)[1]

print(in_child(lambda: print("inherited", truth(), lost(), flush=True)))
print(in_child(lambda: print("again", configure(dtype_policy="float32").complete, truth(), lost(), flush=True)))
print("parent", truth(), lost())
"""

FORKED_WHILE_LOCKED = """
from hwprobe import auto
locked, forked = threading.Event(), threading.Event()

def hold():
    with auto._lock:
        locked.set()
        forked.wait()

threading.Thread(target=hold).start()
locked.wait()
child = os.fork()
if child == 0:
    signal.alarm(100)
    print("child", configure().complete, lost(), flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
forked.set()
print(status)
"""

FORKED_BY_A_STRANGER = """
# The parent never heard of hwprobe, and CUDA does not work in a copy of a process that had started it.
import tensorflow as tf
tf.config.list_physical_devices()
child = os.fork()
if child == 0:
    signal.alarm(100)
    applied = configure()
    (cause,) = (finding for finding in applied.findings if finding.primary)
    print("child", applied.complete, cause.id, *cause.fix, truth(), lost(), flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""

INTERRUPTED = """
import tensorflow as tf

def interrupted_at(owner, name, calls_before):
    setter, left = getattr(owner, name), [calls_before]
    def pressing(*arguments):
        left[0] -= 1
        if left[0] == -1:
            signal.raise_signal(signal.SIGINT)
        return setter(*arguments)
    setattr(owner, name, pressing)
    try:
        configure(dtype_policy="mixed_float16")
    except KeyboardInterrupt:
        pass
    setattr(owner, name, setter)
    try:
        said = lost()
    except hwprobe.HwprobeError as error:
        said = str(error).partition(":")[0]
    print(truth(), said)

interrupted_at(tf.config.experimental, "set_memory_growth", 1)
interrupted_at(tf.keras.mixed_precision, "set_global_policy", 0)
configure(dtype_policy="float32", memory_growth=False)
interrupted_at(tf.config.experimental, "set_memory_growth", 1)
interrupted_at(tf.keras.mixed_precision, "set_global_policy", 0)
print(configure(dtype_policy="mixed_float16").complete, truth(), lost())
"""

FORKS = {
    AT_ONCE: [
        """{"(True, ([True, True], 'mixed_float16'), True)"} 8""",
        "['dtype_policy'] True [] ([True, True], 'mixed_float16')",
    ],
    FORKED: [
        "inherited ([True, True], 'mixed_float16') []",
        "0",
        "again True ([True, True], 'float32') []",
        "0",
        "parent ([True, True], 'mixed_float16') []",
    ],
    FORKED_WHILE_LOCKED: ["child True []", "0"],
    FORKED_BY_A_STRANGER: [
        """child True HWP215 multiprocessing.get_context("spawn") ([True, True], 'mixed_float16') []""",
        "0",
    ],
    INTERRUPTED: [
        # Growth of the first GPU was taken back; nothing was configured, and verify says that.
        "([False, False], 'float32') nothing to verify",
        "([True, True], 'float32') nothing to verify",
        # The decision of the last call that ended is what verify compares with.
        "([False, False], 'float32') []",
        "([True, True], 'float32') ['memory_growth']",
        "True ([True, True], 'mixed_float16') []",
    ],
}


def test_threads_forks_and_interrupts(machine: MakeMachine) -> None:
    cases = [Case(machine(gpus=[T4, T4]), f"{TOOLS}\n{source}") for source in FORKS]
    for expected, end in zip(FORKS.values(), python_in_forks(cases), strict=True):
        assert end.stdout.splitlines() == expected, end.stderr[-2000:]
        assert end.returncode == 0


def test_eight_threads_import_tensorflow_once_between_them(machine: MakeMachine) -> None:
    done = machine(gpus=[T4, T4]).python(f"{TOOLS}\n{AT_ONCE}", timeout=GENEROUS)
    assert done.stdout.splitlines() == FORKS[AT_ONCE], done.stderr[-2000:]


def test_a_spawned_process_has_nothing_until_it_is_configured_itself(machine: MakeMachine, tmp_path: Path) -> None:
    script = tmp_path / "spawning.py"
    script.write_text(
        TOOLS
        + textwrap.dedent(
            """
            import multiprocessing

            def child():
                try:
                    hwprobe.verify()
                except hwprobe.HwprobeError as error:
                    print(str(error).partition(":")[0], flush=True)
                print(configure().complete, truth(), lost(), flush=True)

            if __name__ == "__main__":
                # Nothing is imported here, so that the child alone pays for it.
                process = multiprocessing.get_context("spawn").Process(target=child)
                process.start()
                process.join()
                print(process.exitcode)
            """
        )
    )
    m = machine(gpus=[T4, T4])
    path = os.pathsep.join([m.environment()["PYTHONPATH"], str(ROOT)])
    done = m.run([sys.executable, str(script)], cwd=tmp_path, timeout=GENEROUS, PYTHONPATH=path)
    assert done.stdout.splitlines() == [
        "nothing to verify",
        "True ([True, True], 'mixed_float16') []",
        "0",
    ], done.stderr


def test_in_a_notebook(machine: MakeMachine, tmp_path: Path) -> None:
    """A real kernel runs the cells, one after the other as a user would."""
    source = f"""
        import nbformat
        from nbclient import NotebookClient
        cells = [
            "import hwprobe",
            "applied = hwprobe.auto_configure()",
            "import tensorflow as tf\\nprint(tf.keras.mixed_precision.global_policy().name, bool(hwprobe.verify()))",
            "tf.keras.backend.clear_session()\\nprint(bool(hwprobe.verify()))",
            "print(hwprobe.auto_configure(quiet=True).complete, bool(hwprobe.verify()))",
        ]
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        NotebookClient(notebook, timeout={GENEROUS}, kernel_name="python3").execute()
        for cell in notebook.cells:
            for stream in ("stderr", "stdout"):
                # A kernel sends a stream in as many pieces as its clock makes of it, and not only at the end of a line.
                text = "".join(output.text for output in cell.outputs if output.name == stream)
                for line in text.splitlines():
                    print(stream, line)
    """
    own = {name: str(tmp_path) for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    done = machine(gpus=[T4]).python(textwrap.dedent(source), timeout=2 * GENEROUS, TF_CPP_MIN_LOG_LEVEL="3", **own)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith(("stdout", "stderr hwprobe: "))]
    chosen, *cells = [line for line in said if "HWP312" not in line]
    assert chosen.startswith("stderr hwprobe: mixed_float16 with dynamic loss scaling: Tesla T4 (7.5)"), done.stdout
    assert cells == ["stdout mixed_float16 True", "stdout False", "stdout True True"], done.stdout


def test_under_pytest_xdist(machine: MakeMachine, tmp_path: Path) -> None:
    (tmp_path / "test_training.py").write_text(
        textwrap.dedent(
            """
            import hwprobe
            import pytest

            @pytest.mark.parametrize("number", range(3))
            def test_training(number):
                assert hwprobe.auto_configure().complete
                import tensorflow as tf
                assert tf.keras.mixed_precision.global_policy().name == "mixed_float16"
                assert hwprobe.verify()
            """
        )
    )
    m = machine(gpus=[T4])
    path = os.pathsep.join([m.environment()["PYTHONPATH"], str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider", str(tmp_path)]
    done = m.run(command, cwd=tmp_path, timeout=GENEROUS, PYTHONPATH=path)
    assert "3 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("moment", ["while TensorFlow is imported", "while the driver is asked"])
def test_ctrl_c_ends_it_and_leaves_no_child(machine: MakeMachine, moment: str) -> None:
    # Without cuDNN TensorFlow lists nothing, so hwprobe asks NVML for the reason, in a child that does not end.
    asked = moment == "while the driver is asked"
    m = machine(gpus=[T4], missing=["libcudnn.so.9"], stubborn=["nvmlDeviceGetCount"])
    signal_when = "child" if asked else "import"
    source = f"""
        import os, signal, subprocess, sys, threading, time
        def press():
            deadline = time.monotonic() + {GENEROUS}
            while time.monotonic() < deadline and not happened():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        def happened():
            if {signal_when!r} == "import":
                return "tensorflow.python" in sys.modules
            return "nvmlDeviceGetCount" in open({str(m.folder / "calls")!r}).read()
        def children():
            path = f"/proc/self/task/{{os.getpid()}}/children"
            return open(path).read().split()
        import hwprobe
        if {signal_when!r} == "child":
            import tensorflow
        threading.Thread(target=press, daemon=True).start()
        try:
            hwprobe.auto_configure()
        except KeyboardInterrupt:
            print("interrupted", children())
        try:
            hwprobe.verify()
        except hwprobe.HwprobeError as error:
            print(str(error).partition(":")[0])
    """
    done = m.python(textwrap.dedent(source), timeout=GENEROUS)
    assert done.stdout.splitlines() == ["interrupted []", "nothing to verify"], done.stderr
    assert done.returncode == 0

"""`hwprobe run`: the script behaves as under plain Python, and is configured when it imports TensorFlow or Keras."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.machine import A100, GTX_1660_TI, T4, Machine

MakeMachine = Callable[..., Machine]
Ended = subprocess.CompletedProcess[str]
ROOT = Path(__file__).parents[1]


def write(folder: Path, name: str, source: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return str(path)


def launch(m: Machine, *arguments: str, cwd: Path, python: tuple[str, ...] = (), **variables: str | None) -> Ended:
    variables.setdefault("PYTHONPATH", os.pathsep.join([m.environment()["PYTHONPATH"], str(ROOT)]))
    return m.run([sys.executable, *python, "-m", "hwprobe", "run", *arguments], cwd=cwd, timeout=300, **variables)


@pytest.fixture
def cpu(machine: MakeMachine) -> Machine:
    """A machine without a GPU, for scripts that import nothing."""
    return machine(driver=None)


HOW_IT_RUNS = """
    import json, sys
    print(json.dumps({
        "argv": sys.argv, "path": sys.path[0], "name": __name__, "file": __file__,
        "main": sys.modules["__main__"].__dict__ is globals(), "package": __package__,
    }))
"""


class TestAsUnderPython:
    """Nothing is imported here, so each case costs little."""

    def test_a_script_sees_what_python_would_show_it(self, cpu: Machine, tmp_path: Path) -> None:
        script = write(tmp_path, "work/train.py", HOW_IT_RUNS)
        arguments = [script, "--policy", "mine", "-m", "x", "--", "--strict"]
        ours = launch(cpu, "--quiet", *arguments, cwd=tmp_path)
        plain = cpu.run([sys.executable, *arguments], cwd=tmp_path)
        assert json.loads(ours.stdout) == json.loads(plain.stdout) | {"package": ""}
        assert (ours.returncode, plain.returncode) == (0, 0)

    def test_a_link_to_a_script_leads_to_its_real_folder(self, cpu: Machine, tmp_path: Path) -> None:
        write(tmp_path, "work/helper.py", "print('found')")
        write(tmp_path, "work/train.py", "import helper")
        (tmp_path / "linked.py").symlink_to(tmp_path / "work/train.py")
        assert launch(cpu, "linked.py", cwd=tmp_path).stdout == "found\n"

    def test_a_module_sees_what_python_would_show_it(self, cpu: Machine, tmp_path: Path) -> None:
        write(tmp_path, "package/__init__.py", "")
        write(tmp_path, "package/train.py", HOW_IT_RUNS)
        arguments = ["-m", "package.train", "--policy", "mine", "-m", "x", "--strict"]
        ours = launch(cpu, "--quiet", *arguments, cwd=tmp_path)
        plain = cpu.run([sys.executable, *arguments], cwd=tmp_path)
        assert json.loads(ours.stdout) == json.loads(plain.stdout)

    def test_a_package_is_run_by_its_main_module(self, cpu: Machine, tmp_path: Path) -> None:
        write(tmp_path, "package/__init__.py", "")
        write(tmp_path, "package/__main__.py", "print(__name__, __package__)")
        assert launch(cpu, "-mpackage", cwd=tmp_path).stdout == "__main__ package\n"

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="-P came with Python 3.11")
    def test_a_safe_path_stays_safe(self, cpu: Machine, tmp_path: Path) -> None:
        script = write(tmp_path, "train.py", "import sys, json\nprint(sys.path[0], json.__name__)")
        ours = launch(cpu, script, cwd=tmp_path, python=("-P",))
        assert ours.stdout == cpu.run([sys.executable, "-P", script], cwd=tmp_path).stdout

    @pytest.mark.parametrize(
        ("source", "status", "last_words"),
        [
            ("import sys; sys.exit(7)", 7, ""),
            ("import sys; sys.exit('no data')", 1, "no data"),
            ("raise SystemExit", 0, ""),
            ("raise ValueError('mine')", 1, "ValueError: mine"),
            ("input()", 1, "EOFError: EOF when reading a line"),
            ("import click; raise click.UsageError('mine')", 1, "click.exceptions.UsageError: mine"),
            ("import click; raise click.Abort", 1, "click.exceptions.Abort"),
            ("open('/no/such/file')", 1, "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"),
            ("raise BrokenPipeError(32, 'mine')", 1, "BrokenPipeError: [Errno 32] mine"),
            ("import hwprobe; raise hwprobe.InputError('mine')", 1, "hwprobe.errors.InputError: mine"),
            ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15, ""),
            ("raise KeyboardInterrupt", -2, "KeyboardInterrupt"),
        ],
    )
    def test_its_end_is_its_own(self, cpu: Machine, tmp_path: Path, source: str, status: int, last_words: str) -> None:
        ended = launch(cpu, write(tmp_path, "train.py", source), cwd=tmp_path)
        said = [line for line in ended.stderr.splitlines() if not line.startswith("hwprobe: nothing")]
        assert (ended.returncode, said[-1] if said else "") == (status, last_words), ended.stderr
        # What ends by `sys.exit` or a signal has no traceback under Python either.
        assert ('train.py", line 1, in <module>' in ended.stderr) is (len(said) > 1)

    def test_a_script_that_imports_neither_is_named(self, cpu: Machine, tmp_path: Path) -> None:
        ended = launch(cpu, write(tmp_path, "train.py", "print('done')"), cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (0, "done\n")
        assert ended.stderr.splitlines() == [
            f"hwprobe: nothing was configured: {tmp_path}/train.py imported neither TensorFlow nor Keras"
        ]

    def test_processes_that_it_spawns_find_its_functions(self, cpu: Machine, tmp_path: Path) -> None:
        script = """
            import multiprocessing

            def square(number):
                return number * number

            if __name__ == "__main__":
                with multiprocessing.get_context("spawn").Pool(1) as pool:
                    print(pool.map(square, [2, 3]))
        """
        assert launch(cpu, write(tmp_path, "train.py", script), cwd=tmp_path).stdout == "[4, 9]\n"

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["no-such.py"], "error: no-such.py is not a file that can be run"),
            (["-m", "no_such_module"], "error: no module named no_such_module can be run"),
            (["-m", "json.no.such"], "error: no module named json.no.such can be run"),
            (["--policy", "no-such.toml", "train.py"], "no-such.toml"),
            (["--require", "gpus>>1", "train.py"], "gpus>>1"),
            (["--loss-scaling", "static", "train.py"], "loss scaling 'static' is not understood"),
            (["--dtype-policy", "float64", "train.py"], "'float64' is not one of"),
            (["--polcy", "x", "train.py"], "No such option"),
            ([], "name a SCRIPT or -m MODULE to run"),
            (["--strict"], "name a SCRIPT or -m MODULE to run"),
            (["-m"], "'-m' requires an argument"),
        ],
        ids=str,
    )
    def test_what_is_wrong_is_said_before_the_script_begins(
        self, cpu: Machine, tmp_path: Path, arguments: list[str], says: str
    ) -> None:
        write(tmp_path, "train.py", "print('begun')")
        ended = launch(cpu, *arguments, cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert says.lower() in ended.stderr.lower()
        assert "Traceback" not in ended.stderr


POLICY = "print('policy', tf.keras.mixed_precision.global_policy().name)"


class TestConfigured:
    """The real TensorFlow on machines of ours. By CUDA's order the A100 is GPU 0 and the T4 GPU 1."""

    def test_the_scripts_own_variables_and_arguments_count(self, machine: MakeMachine, tmp_path: Path) -> None:
        script = f"""
            import os, sys
            os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
            from tensorflow import keras
            import tensorflow as tf
            {POLICY}
            from tensorflow.python.eager import context
            print("up", context.context()._initialized)
            growth = tf.config.experimental.get_memory_growth
            print("growth", [growth(gpu) for gpu in tf.config.list_physical_devices("GPU")])
            sys.exit(3)
        """
        ended = launch(machine(gpus=[T4, A100]), write(tmp_path, "train.py", script), "1", cwd=tmp_path)
        assert ended.stdout.splitlines() == ["policy mixed_float16", "up False", "growth [True]"], ended.stderr
        assert ended.returncode == 3
        (line,) = [line for line in ended.stderr.splitlines() if line.startswith("hwprobe: mixed")]
        assert "Tesla T4 (7.5)" in line
        assert "A100" not in line

    def test_keras_first_in_a_module(self, machine: MakeMachine, tmp_path: Path) -> None:
        script = """
            import keras
            print("policy", keras.config.dtype_policy().name)
            import hwprobe
            print(bool(hwprobe.verify()))
        """
        write(tmp_path, "train.py", script)
        ended = launch(machine(gpus=[A100]), "--dtype-policy", "mixed_float16", "--quiet", "-m", "train", cwd=tmp_path)
        assert ended.stdout.splitlines() == ["policy mixed_float16", "True"], ended.stderr
        assert not [line for line in ended.stderr.splitlines() if line.startswith("hwprobe")]

    def test_in_a_function_in_a_thread(self, machine: MakeMachine, tmp_path: Path) -> None:
        script = """
            import threading
            def load():
                import tensorflow as tf
                print("policy", tf.keras.mixed_precision.global_policy().name)
            thread = threading.Thread(target=load, name="loader")
            thread.start()
            thread.join()
            import hwprobe
            print(bool(hwprobe.verify()), hwprobe.auto_configure(quiet=True).complete, bool(hwprobe.verify()))
        """
        ended = launch(machine(gpus=[A100]), write(tmp_path, "train.py", script), cwd=tmp_path)
        assert ended.stdout.splitlines() == ["policy mixed_bfloat16", "False True True"], ended.stderr
        assert "set for the thread 'loader' alone" in ended.stderr

    @pytest.mark.parametrize(
        ("options", "status", "says"),
        [
            (["--dtype-policy", "mixed_bfloat16"], 1, "mixed_bfloat16"),
            (["--require", "gpus>=2"], 1, "gpus>=2"),
        ],
        ids=["unsupported", "required"],
    )
    def test_what_cannot_be_met_ends_the_script_at_its_import(
        self, machine: MakeMachine, tmp_path: Path, options: list[str], status: int, says: str
    ) -> None:
        script = """
            try:
                import tensorflow
            except Exception:
                print("swallowed")
            print("trained")
        """
        ended = launch(machine(gpus=[GTX_1660_TI]), *options, write(tmp_path, "train.py", script), cwd=tmp_path)
        assert (ended.returncode, ended.stdout) == (status, ""), ended.stderr
        (line,) = [line for line in ended.stderr.splitlines() if line.startswith("hwprobe: error:")]
        assert says in line
        assert "Traceback" not in ended.stderr

"""A real Slurm of several nodes on one host: own munge, own controller, one slurmd a node, each with its own host name.

Everything runs in the foreground as a child of the test, below one folder, and is ended and waited for. Each slurmd
lives in its own UTS and mount namespace, so that its node has its own host name, its own `/var/tmp`, and its own
machine of ours: the same path leads to another machine on every node.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.dates import TODAY
from tests.machine import Machine
from tests.machine.machine import HOOK
from tests.ports import free_ports

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "munged", "unshare")
UP_SECONDS = 60
JOB_SECONDS = 400
STOP_SECONDS = 20
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def why_not_here() -> str | None:
    """Why no Slurm can be started on this host; None where one can."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=SYSTEM_PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)"
    if os.geteuid() != 0:
        return "needs root: slurmd, namespaces and device nodes"
    tried = subprocess.run(["unshare", "--mount", "--uts", "true"], capture_output=True, text=True)
    return None if tried.returncode == 0 else f"no namespaces here: {tried.stderr.strip()}"


@dataclasses.dataclass(frozen=True)
class Finished:
    """A batch job that has ended."""

    id: str
    state: str
    exit_status: int
    output: str


class Slurm:
    """A running cluster.

    Attributes:
        folder: Holds configuration, logs, spool and the output of jobs.
        nodes: Names of the nodes.
        hwprobe: The command, run on the machine of whatever node it is called on.
        python: This interpreter, likewise.
        prolog, task_prolog: The site's hooks; a test may write them.
    """

    def __init__(self, folder: Path, nodes: Sequence[str], *, gpus_per_node: int = 2) -> None:
        self.folder = folder
        self.nodes = tuple(nodes)
        self.hwprobe = folder / "bin" / "hwprobe"
        self.python = folder / "bin" / "python"
        self.prolog = folder / "prolog"
        self.task_prolog = folder / "task-prolog"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._gpus_per_node = gpus_per_node

    def __enter__(self) -> Slurm:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def place(self, node: str | None, machine: Machine | None) -> None:
        """Give a node another machine; None takes its machine away, and hwprobe cannot start there any more.

        Without a node: the machine that jobs are submitted from.
        """
        link = (self.folder / "machine" if node is None else self._slot(node)) / "now"
        link.unlink(missing_ok=True)
        if machine is not None:
            link.symlink_to(machine.folder)

    def hook(self, path: Path, script: str) -> None:
        """Put a script in the place of one of the site's hooks."""
        path.write_text(script)
        path.chmod(0o755)

    def run(self, command: Sequence[str], *, timeout: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's commands."""
        return subprocess.run(
            command,
            env=self._environment() | variables,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a line of shell, as a user who has hwprobe and its Python on the path."""
        path = f"{self.folder / 'bin'}:{SYSTEM_PATH}"
        return self.run(["bash", "-euo", "pipefail", "-c", command], timeout=JOB_SECONDS, PATH=path)

    def submit(self, script: Path, *options: str, timeout: float = JOB_SECONDS, **variables: Any) -> Finished:
        """Submit a batch script and wait for its end.

        Raises:
            TimeoutError: It does not end in time; it is cancelled then.
        """
        done = self.run(["sbatch", "--parsable", *options, str(script)], **variables)
        assert done.returncode == 0, done.stderr
        job = done.stdout.strip().split(";")[0]
        state, status = self._wait_for(job, timeout)
        output = self.folder / f"slurm-{job}.out"
        return Finished(job, state, status, output.read_text() if output.exists() else "")

    def node_state(self, node: str) -> tuple[str, str]:
        """State of a node and the reason for it."""
        done = self.run(["sinfo", "--noheader", "--nodes", node, "--format", "%T|%E"])
        state, _, reason = done.stdout.strip().partition("|")
        return state.rstrip("*$~#!%"), reason

    def settled_state(self, node: str) -> tuple[str, str]:
        """The same, once no job is on the node any more."""
        self._until(lambda: self.node_state(node)[0] in ("idle", "drained", "down"), f"{node} does not settle")
        return self.node_state(node)

    def resume(self, node: str) -> None:
        """Take a drained node back."""
        self.run(["scontrol", "update", f"NodeName={node}", "State=RESUME"])
        self._until(lambda: self.node_state(node)[0] == "idle", f"{node} does not come back")

    def _wait_for(self, job: str, timeout: float) -> tuple[str, int]:
        deadline = time.monotonic() + timeout
        while True:
            shown = self.run(["scontrol", "--oneliner", "show", "job", job]).stdout
            facts = dict(part.partition("=")[::2] for part in shown.split() if "=" in part)
            state = facts.get("JobState", "")
            if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", ""):
                return state, int(facts["ExitCode"].split(":")[0])
            if state == "PENDING" and "held" in facts.get("Reason", ""):
                return "HELD", -1
            if time.monotonic() > deadline:
                self.run(["scancel", "--signal=KILL", "--full", job])
                self.run(["scancel", job])
                raise TimeoutError(f"job {job} is {state} after {timeout} s: {shown}")
            time.sleep(0.2)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name in ("HOME", "LANG", "TMPDIR", "USER")}
        return kept | {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": SYSTEM_PATH}

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write_commands()
        for hook in (self.prolog, self.task_prolog):
            self.hook(hook, "#!/bin/sh\nexit 0\n")
        self._start_munge()
        self._configure()
        self._spawn("slurmctld", ["slurmctld", "-D", "-f", str(self.folder / "slurm.conf")])
        for node in self.nodes:
            (self.folder / f"var-tmp-{node}").mkdir()
            self._slot(node).mkdir()
            script = (
                f'hostname {node} && mount --bind "{self.folder}/var-tmp-{node}" /var/tmp '
                f'&& mount --bind "{self._slot(node)}" "{self.folder}/machine" '
                f'&& exec slurmd -D -N {node} -f "{self.folder}/slurm.conf"'
            )
            self._spawn(f"slurmd-{node}", ["unshare", "--mount", "--uts", "sh", "-c", script])
        self._until(self._all_idle, "the nodes do not come up")

    def _all_idle(self) -> bool:
        done = self.run(["sinfo", "--noheader", "--Node", "--format", "%T"])
        return done.stdout.split().count("idle") == len(self.nodes)

    def _slot(self, node: str) -> Path:
        return self.folder / f"machine-of-{node}"

    def _write_commands(self) -> None:
        (self.folder / "machine").mkdir()
        (self.folder / "bin").mkdir()
        machine = self.folder / "machine" / "now"
        path = os.pathsep.join([str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")])])
        for program, command in ((self.hwprobe, '-m hwprobe "$@"'), (self.python, '"$@"')):
            program.write_text(
                "#!/bin/bash\n"
                f'[ -e "{machine}/description" ] || exit 1\n'
                f'export HWPROBE_TEST_MACHINE="{machine}/description" HWPROBE_TEST_TODAY={TODAY} PYTHONPATH="{path}"\n'
                f'export LD_LIBRARY_PATH="{machine}/lib" TF_CPP_MIN_LOG_LEVEL=3\n'
                f'exec "{sys.executable}" {command}\n'
            )
            program.chmod(0o755)

    def _start_munge(self) -> None:
        # munged refuses a socket below folders that others may write to, which a folder for temporary files is.
        self._key = self.folder / "munge.key"
        self._key.write_bytes(secrets.token_bytes(64))
        self._key.chmod(0o600)
        self._socket = self.folder / "munge.socket"
        paths = {"socket": self._socket, "key-file": self._key, "pid-file": self.folder / "munge.pid"}
        paths |= {"log-file": self.folder / "munge.log", "seed-file": self.folder / "munge.seed"}
        command = ["munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in paths.items())]
        self._spawn("munged", command)
        self._until(self._socket.exists, "munged does not start")

    def _configure(self) -> None:
        controller, *ports = free_ports(1 + len(self.nodes))
        host = socket.gethostname()
        lines = [
            "ClusterName=ours",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self._socket}",
            f"StateSaveLocation={self.folder}/state",
            f"SlurmdSpoolDir={self.folder}/spool-%n",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/slurmd-%n.pid",
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "GresTypes=gpu",
            "SlurmdParameters=config_overrides",
            "ReturnToService=2",
            "KillWait=2",
            "TmpFS=/var/tmp",
            "JobRequeue=1",
            "SchedulerParameters=batch_sched_delay=0,sched_interval=1",
            f"Prolog={self.prolog}",
            "PrologFlags=Alloc",
            f"TaskProlog={self.task_prolog}",
        ]
        gres = []
        for number, (node, port) in enumerate(zip(self.nodes, ports, strict=True)):
            lines.append(
                f"NodeName={node} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=4000 "
                f"Gres=gpu:fake:{self._gpus_per_node}"
            )
            devices = [self.folder / f"gpu-{number}-{index}" for index in range(self._gpus_per_node)]
            for device in devices:
                # Slurm wants character devices; /dev/null's numbers do no harm.
                os.mknod(device, 0o20666, os.makedev(1, 3))
            gres.append(
                f"NodeName={node} Name=gpu Type=fake File={self.folder}/gpu-{number}-[0-{self._gpus_per_node - 1}]"
            )
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text("\n".join(lines) + "\n")
        (self.folder / "gres.conf").write_text("\n".join(gres) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _spawn(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command,
                    env=self._environment(),
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _until(self, happened: Callable[[], bool], failure: str) -> None:
        deadline = time.monotonic() + UP_SECONDS
        while not happened():
            if time.monotonic() > deadline:
                logs = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.folder.glob("*.log"))
                raise TimeoutError(f"{failure} within {UP_SECONDS} s\n{logs}")
            time.sleep(0.05)

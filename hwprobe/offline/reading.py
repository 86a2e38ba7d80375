"""The report that a file or a description stands for: what kind it is, its content tells."""

from __future__ import annotations

import codecs
import re
from pathlib import Path
from typing import Any

from hwprobe.errors import InputError
from hwprobe.files import open_without_waiting
from hwprobe.offline.labels import ASK as ASK_LABELS
from hwprobe.offline.labels import is_labels, report_of_labels
from hwprobe.offline.nvidia_smi import ASK_CSV, ASK_XML
from hwprobe.offline.nvidia_smi_csv import is_header, report_of_csv
from hwprobe.offline.nvidia_smi_xml import report_of_xml
from hwprobe.offline.recording import report_of_recording
from hwprobe.offline.target import report_of_target
from hwprobe.offline.wheel import Wish, with_tensorflow
from hwprobe.report import Report
from hwprobe.serialize import from_json

MAX_BYTES = 16 * 2**20

ACCEPTED = "a file of `hwprobe capture`, of `hwprobe check --format json`, of `nvidia-smi -q -x`, or nvidia-smi's csv"

_HUMAN = (
    (r"NVSMI LOG|^ *Product Name +:", "the log of nvidia-smi -q, which has a form for programs"),
    (
        r"^\+[-=+]{20,}\+|^\| NVIDIA-SMI ",
        "the table of nvidia-smi, which is made for reading and changes with every driver",
    ),
    (r"^GPU \d+: .*\(UUID: ", "the list of nvidia-smi -L, which does not tell enough"),
    (r"^NVIDIA-SMI version +:", "what nvidia-smi --version says, without the GPUs"),
)
"""What else nvidia-smi writes, by a pattern that is in it."""

_HEAD = 4000
"""Characters that are enough to tell what a file is."""

_ERROR = re.compile(
    r"NVIDIA-SMI has failed|Failed to initialize NVML|Unable to determine the device handle|No devices were found"
)


def read_file(path: Path, *, tensorflow: str | None = None) -> Report:
    """Make the report of the machine that a file tells of (`hwprobe check --from FILE`).

    Args:
        path: A capture, a check in JSON, nvidia-smi's XML or nvidia-smi's csv.
        tensorflow: Version of TensorFlow to judge by, in place of the one in the file; None for that one, or for the
            newest release where the file has none.

    Raises:
        InputError: The file cannot be read, is of another kind, or is damaged; the message names the place in it and
            what to run.
    """
    text, origin = _read(path), str(path)
    start = text.lstrip("\ufeff \t\r\n")
    if not start:
        raise InputError(f"{origin}: it is empty. Expected {ACCEPTED}")
    if start.startswith("<"):
        return report_of_xml(start, origin=origin, tensorflow=tensorflow)
    if start.startswith(("{", "[")):
        recorded = report_of_recording(start, origin=origin)
        return recorded if tensorflow is None else with_tensorflow(recorded, Wish(tensorflow))
    _refuse_human_text(start, origin)
    if is_header(start.partition("\n")[0]):
        return report_of_csv(start, origin=origin, tensorflow=tensorflow)
    raise InputError(f"{origin}: it is no file that hwprobe knows. Expected {ACCEPTED}")


def read_target(text: str, *, tensorflow: str | None = None) -> Report:
    """Make the report of a machine that somebody describes (`hwprobe check --target TEXT|FILE`).

    Args:
        text: The description in words, or the name of a file that holds a node's labels as JSON.
        tensorflow: Version of TensorFlow where the description names none; None for the newest release.

    Raises:
        InputError: It is not understood, or the file cannot be read.
    """
    path = Path(text)
    if not _is_file(path):
        if path.suffix.lower() in (".json", ".yaml", ".yml"):
            raise InputError(f"--target: there is no file {text}")
        return report_of_target(text, tensorflow=tensorflow)
    content = _read(path).lstrip("\ufeff \t\r\n")
    if not content.startswith(("{", "[")):
        raise InputError(
            f"{text}: expected the labels of a Kubernetes node as JSON. Other files are given with --from, and a "
            "description in words stands on the command line"
        )
    if not is_labels(from_json(content, Any, where=text)):
        raise InputError(
            f"{text}: neither a Kubernetes node nor its labels. Make the file with: {ASK_LABELS} (a recorded "
            "machine is given with --from)"
        )
    return report_of_labels(content, origin=text, tensorflow=tensorflow)


def _is_file(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except (OSError, ValueError):
        # A description may be longer than a file name can be, or hold what no file name can.
        return False


def _read(path: Path) -> str:
    try:
        with open_without_waiting(path) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 2**20} MiB: not the report of one machine")
    # PowerShell's `>` writes UTF-16; a process name in nvidia-smi's output may be in any code page.
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return data.decode("utf-16" if wide else "utf-8", "replace")


def _refuse_human_text(text: str, origin: str) -> None:
    head = text[:_HEAD]
    if _ERROR.search(head):
        line = head.splitlines()[0][:200]
        raise InputError(
            f"{origin}: it holds an error of nvidia-smi ({line!r}), not its output. On that machine run: "
            "hwprobe capture -o machine.json"
        )
    for form, kind in _HUMAN:
        if re.search(form, head, re.MULTILINE):
            raise InputError(f"{origin}: it is {kind}. Run one of:\n{ASK_XML}\n{ASK_CSV}")

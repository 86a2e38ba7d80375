"""Runs as a script on a test machine: imports slow modules once, then forks for each case. See `forks.py`."""

import importlib
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any


def run_case(case: dict[str, Any]) -> int:
    """Becomes the process of one case and returns its exit status."""
    signal.alarm(case["seconds"])
    for stream, path in ((1, case["stdout"]), (2, case["stderr"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), stream)
    os.environ.clear()
    os.environ.update(case["environment"])
    try:
        exec(compile(case["source"], "<case>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - whatever ends a case must not run the server's own code
        traceback.print_exc()
        return 1
    return 0


def main(path: Path) -> None:
    """Imports, forks for one case after the other, and writes down how each ended."""
    request = json.loads(path.read_text())
    for module in request["preload"]:
        importlib.import_module(module)
    ends = []
    for case in request["cases"]:
        child = os.fork()
        if child == 0:
            status = run_case(case)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    path.with_suffix(".ends").write_text(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

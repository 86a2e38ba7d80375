"""`python -m hwprobe`: the command, for the Python that runs it."""

from hwprobe.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

"""The version of hwprobe; `pyproject.toml` reads it from here."""

VERSION = "0.1.0"

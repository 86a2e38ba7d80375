"""Tests of reports that are made from something else than this machine."""

"""Tests of the policies: their types, their file format, the reader and the command."""

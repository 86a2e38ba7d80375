"""Tests of the project as a whole: its wheel, its imports, its files."""

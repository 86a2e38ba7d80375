"""Tests that what README and docs show is what happens."""

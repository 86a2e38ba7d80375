"""Tests of hwprobe."""

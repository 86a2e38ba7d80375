"""Benchmarks of hwprobe: what it costs, and how good its choices are. `make bench` runs them all."""

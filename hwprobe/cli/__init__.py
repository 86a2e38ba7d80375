"""The hwprobe command: parse, call, render, exit."""

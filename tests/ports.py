"""Ports on loopback for servers that a test is about to start."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Different ports that nobody listens on; all are held until the last one is known."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()

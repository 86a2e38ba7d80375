"""What the tests of the applier share: the words of their scripts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from tests.machine import Machine

MakeMachine = Callable[..., Machine]

TOOLS = """
import json, os, sys, threading
import hwprobe
import numpy
import tensorflow as tf
from tensorflow.python.client import device_lib
from tensorflow.python.eager import context

def gpus():
    return tf.config.list_physical_devices("GPU")

def cpus():
    return tf.config.list_physical_devices("CPU")

def limit(device, *limits):
    configurations = [tf.config.LogicalDeviceConfiguration(memory_limit=each) for each in limits]
    tf.config.set_logical_device_configuration(device, configurations)

def touch(mebibytes=0.001):
    with tf.device("GPU:0"):
        return tf.constant(numpy.zeros(int(mebibytes * 2**20), "uint8"))

def configure(**arguments):
    return hwprobe.auto_configure(quiet=True, **arguments)

def statuses(applied, setting):
    return sorted({step.status for step in applied.steps if step.setting == setting})

def errors(steps):
    return " | ".join(step.error for step in steps if step.error and step.setting != "dtype_policy")
"""


def sources(*parts: str) -> str:
    """One script of several blocks, each indented as it stands here."""
    return "\n".join(textwrap.dedent(part) for part in parts)

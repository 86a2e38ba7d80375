"""Faults of every kind at the level of the whole command: a clear answer, no traceback, no hang, nothing made up."""

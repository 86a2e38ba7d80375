"""Timing kernels in each precision on this machine, against a float64 reference."""

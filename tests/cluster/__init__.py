"""Tests of many nodes with one policy: pure merges, and real runs of Slurm, TensorFlow, MPI and manifests."""

"""Reports of machines that are not here: from a description, a node's labels, nvidia-smi's output, or a recording."""

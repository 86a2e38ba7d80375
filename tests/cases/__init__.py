"""Public bug reports, each as a test named by its number here, or with the reason why it cannot be one."""

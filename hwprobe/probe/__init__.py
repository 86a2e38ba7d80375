"""One module a source of facts, and the child process that runs them with a time limit."""

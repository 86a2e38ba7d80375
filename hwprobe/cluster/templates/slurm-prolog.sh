#!/bin/bash
# Site prolog, for `Prolog=` in slurm.conf. It runs as root on every node of a job before the job starts.
#
# Slurm drains the node of a prolog that exits with anything but 0, and requeues the job. So this one exits with 1 only
# where hwprobe itself says that no job can use the node's GPUs (`--fail-on drain`): a user's mistake, a missing
# TensorFlow, a wrong option here, or hwprobe failing to start must never cost a node. It calls none of Slurm's commands.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

hwprobe=({{hwprobe}})
log={{log}}

rm -f -- "$log"
timeout --signal=KILL 60 \
    "${hwprobe[@]}" check --fast --timeout 20 --fail-on drain --format json --output "$log" >/dev/null 2>&1

# The exit status alone does not do: a Python that cannot start says 1 too.
if [ "$?" -eq 1 ] && grep -q '"verdict": *"not_ready"' "$log" 2>/dev/null; then
    exit 1
fi
exit 0

#!/bin/bash
# Site task prolog, for `TaskProlog=` in slurm.conf. It runs as the user before every task. Slurm reads its output:
# a line `export NAME=VALUE` sets a variable of the task. It never fails a task: anything but 0 would.
#
# A job that made a plan (see `hwprobe template slurm`) has it handed to every task, unless it names another itself.

directory={{directory}}
plan="${directory:-$SLURM_SUBMIT_DIR/hwprobe-records}/$SLURM_JOB_ID/plan-${SLURM_RESTART_COUNT:-0}.json"

if [ -z "${HWPROBE_PLAN:-}" ] && [ -r "$plan" ]; then
    printf 'export HWPROBE_PLAN=%s\n' "$plan"
fi
exit 0

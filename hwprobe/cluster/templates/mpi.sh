#!/bin/bash
# One dtype policy for all ranks of an MPI job (Open MPI): check every node, make one plan, train with it.
# Ranks that have mpi4py agree without a plan too; a plan made first is checked before the first rank starts.

set -euo pipefail

hwprobe=({{hwprobe}})
train=({{command}})
directory={{directory}}
launch=(mpirun)
launch+=(--hostfile {{hostfile}})

# mpirun gives its jobs no id that outlives one call, so this start gets its own.
HWPROBE_JOB="mpi-$(hostname -s)-$$-$(date +%s)"
export HWPROBE_JOB
records="${directory:-$PWD/hwprobe-records}/$HWPROBE_JOB"
export HWPROBE_PLAN="$records/plan.json"
mkdir -p "$records"

# 1. Every node writes a record: one rank a node. mpirun ends all ranks when one fails, so a node that is not ready
#    still ends with 0 here, and its record says what is wrong.
# shellcheck disable=SC2016  # the rank's own shell expands them
"${launch[@]}" --map-by ppr:1:node -np {{nodes}} -x HWPROBE_JOB \
    sh -c '"$@" || true' check timeout --signal=KILL 180 "${hwprobe[@]}" check --record "$records"

# 2. One plan. Exit status: 0 agreed, 1 the job must not start, 2 a record cannot be read.
"${hwprobe[@]}" plan "$records" --expect {{nodes}} --output "$HWPROBE_PLAN" || exit $?

# 3. Every rank takes the plan (`hwprobe.auto_configure()` or `hwprobe run` reads HWPROBE_PLAN).
exec "${launch[@]}" --map-by ppr:{{ranks}}:node -x HWPROBE_JOB -x HWPROBE_PLAN "${train[@]}"

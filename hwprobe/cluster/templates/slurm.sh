#!/bin/bash
# One dtype policy for all nodes of a job: check every node, make one plan, train with it.
# Nothing trains where a node is missing or not ready; the plan says which and why.
# hwprobe reads Slurm's node lists with ClusterShell: pip install "tf-hwprobe[cluster]".

#SBATCH --job-name={{job}}
#SBATCH --partition={{partition}}
#SBATCH --nodes={{nodes}}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={{gpus}}
#SBATCH --time={{time}}

set -euo pipefail

hwprobe=({{hwprobe}})
train=({{command}})
directory={{directory}}

# Keyed by job, and the plan by restart: what an earlier start left behind never counts.
records="${directory:-$SLURM_SUBMIT_DIR/hwprobe-records}/$SLURM_JOB_ID"
plan="$records/plan-${SLURM_RESTART_COUNT:-0}.json"
mkdir -p "$records"

# 1. Every node writes a record: one task a node, which sees all GPUs that the job has there. A node that is not ready
#    must not keep the others from saying what they have, so nothing is killed on a bad exit, and the status is left to
#    the plan: srun gives only the highest one. Each task ends by its own limit.
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=0 --label \
    timeout --signal=KILL 180 \
    "${hwprobe[@]}" check --record "$records" --require "gpus>=${SLURM_GPUS_ON_NODE:-1}" \
    || echo "hwprobe: the check of some node ended with a status other than 0" >&2

# 2. One plan. Exit status: 0 agreed, 1 the job must not start, 2 a record cannot be read.
"${hwprobe[@]}" plan "$records" --expect "$SLURM_JOB_NODELIST" --output "$plan" || exit $?

# 3. Every worker takes the plan (`hwprobe.auto_configure()` or `hwprobe run` reads HWPROBE_PLAN) and refuses to start
#    where it does not fit. TF_CONFIG is for MultiWorkerMirroredStrategy; a script without it may ignore it.
export HWPROBE_PLAN="$plan"
port=$((20000 + SLURM_JOB_ID % 20000))
workers=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | sed "s/.*/\"&:$port\"/" | paste --serial --delimiters=,)
export workers
# shellcheck disable=SC2016  # the worker's own shell expands them
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
    bash -c '
        export TF_CONFIG="{\"cluster\":{\"worker\":[$workers]},\"task\":{\"type\":\"worker\",\"index\":$SLURM_NODEID}}"
        exec "$@"' worker "${train[@]}"

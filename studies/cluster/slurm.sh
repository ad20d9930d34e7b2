#!/bin/bash
# A Ray cluster over the nodes of a Slurm job, and a study on it:
#
#     sbatch studies/cluster/slurm.sh study.yaml
#
# Submitted again, the study goes on from where it was cut off. Adapt the lines with SBATCH, and how the environment
# with diffcredit[cluster] is found, which must be the same on all nodes.
#SBATCH --job-name=diffcredit
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@600
#SBATCH --output=%x-%j.log

set -euo pipefail
study=${1:?"usage: sbatch slurm.sh STUDY [options of diffcredit run]"}
shift
source "${VIRTUAL_ENV:-.venv}/bin/activate"

# Whoever has the cluster's token may run programs on its nodes: one for this job, readable by its owner alone.
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$HOME/.diffcredit-ray-token-$SLURM_JOB_ID"
head -c 32 /dev/urandom | sha256sum | cut -d ' ' -f 1 > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
umask 022
export RAY_USAGE_STATS_ENABLED=0

nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
head_node=$(head -n 1 <<< "$nodes")
address=$(srun --nodes=1 --ntasks=1 --nodelist="$head_node" hostname --ip-address | cut -d ' ' -f 1):6379
resources=(--num-cpus="$SLURM_CPUS_PER_TASK" --num-gpus="${SLURM_GPUS_ON_NODE:-0}")

srun --nodes=1 --ntasks=1 --nodelist="$head_node" --overlap \
  ray start --head --node-ip-address="${address%:*}" --port="${address##*:}" "${resources[@]}" --block &
until (exec 3<> "/dev/tcp/${address%:*}/${address##*:}") 2> /dev/null; do sleep 1; done
others=$((SLURM_JOB_NUM_NODES - 1))
if (( others > 0 )); then
  srun --nodes="$others" --ntasks="$others" --exclude="$head_node" --overlap \
    ray start --address="$address" "${resources[@]}" --block &
fi

# Ten minutes before its time is up Slurm tells the job (--signal above): evaluations under way are finished.
set -m  # without job control what runs in the background ignores interrupts
diffcredit run "$study" --on ray --address "$address" "$@" &
driver=$!
trap 'kill -INT "$driver"' USR1
code=0
wait "$driver" || code=$?
if kill -0 "$driver" 2> /dev/null; then  # the signal ended the wait, not the driver
  code=0
  wait "$driver" || code=$?
fi
exit "$code"

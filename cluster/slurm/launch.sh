#!/usr/bin/env bash
# launch.sh COMMAND [ARGUMENT ...]      inside a Slurm allocation: a scheduler here, workers on every node, then COMMAND.
#
# COMMAND finds the cluster by MGRAPH_SCHEDULER_FILE and MGRAPH_WORKERS. However it ends, by itself, by a signal or by the
# job's time limit, workers and scheduler are closed, and this script exits with its status. The settings:
#   MGRAPH_PYTHON           the interpreter that has mgraph on every node       (python)
#   MGRAPH_DEVICE           gpu: one worker a GPU; cpu: MGRAPH_PER_NODE workers (gpu)
#   MGRAPH_PER_NODE         workers a node                                      (SLURM_GPUS_ON_NODE, or 1)
#   MGRAPH_THREADS          threads of a CPU worker, for its kernels too        (1)
#   MGRAPH_INTERFACE        network of Dask's messages, such as ib0             (Dask's choice)
#   MGRAPH_DASHBOARD        address of Dask's dashboard                         (any port; the log names it)
#   MGRAPH_RUN_DIR          a folder that every node sees                       (SLURM_SUBMIT_DIR)
#   MGRAPH_START_SECONDS    how long the workers have to join                   (120)
#   MGRAPH_WORKER_OPTIONS   more options of the worker command, such as "--local-directory /scratch"
set -euo pipefail

python=${MGRAPH_PYTHON:-python}
nodes=${SLURM_JOB_NUM_NODES:-1}
per_node=${MGRAPH_PER_NODE:-${SLURM_GPUS_ON_NODE:-1}}
run_dir=${MGRAPH_RUN_DIR:-${SLURM_SUBMIT_DIR:-$PWD}}
export MGRAPH_SCHEDULER_FILE="$run_dir/scheduler-${SLURM_JOB_ID:-$$}.json"
export MGRAPH_WORKERS=$((nodes * per_node))
network=(${MGRAPH_INTERFACE:+--interface "$MGRAPH_INTERFACE"})
[ $# -gt 0 ] || { echo "usage: launch.sh COMMAND [ARGUMENT ...]" >&2; exit 2; }
[ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK  # srun does not inherit it

scheduler='' workers='' command=''  # process ids
close_one() {  # close_one PID SIGNAL ...: politely, then not; 12 seconds for each signal
  local pid=$1 signal tenth
  [ -n "$pid" ] || return 0
  for signal in "${@:2}" KILL; do
    kill -s "$signal" "$pid" 2>/dev/null || return 0
    for tenth in {1..120}; do kill -0 "$pid" 2>/dev/null || return 0; sleep 0.1; done
  done
}
close_all() {  # the command first, then the workers, which take their leave of the scheduler, then the scheduler
  trap '' TERM INT
  close_one "$command" TERM
  close_one "$workers" USR1 TERM  # on USR1 the tasks close their workers; on TERM srun has them killed
  close_one "$scheduler" TERM
  rm -f "$MGRAPH_SCHEDULER_FILE"
}
trap close_all EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

rm -f "$MGRAPH_SCHEDULER_FILE"  # one of an earlier job would lead the workers astray
"$python" -m dask scheduler --port 0 --dashboard-address "${MGRAPH_DASHBOARD:-:0}" ${network[@]+"${network[@]}"} \
  --scheduler-file "$MGRAPH_SCHEDULER_FILE" &
scheduler=$!

case ${MGRAPH_DEVICE:-gpu} in
  gpu) worker=(cuda worker --device-memory-limit 0) ;;  # one per GPU; graphs are no Dask data: nothing to spill
  cpu) worker=(worker --nworkers "$per_node" --nthreads "${MGRAPH_THREADS:-1}") ;;
  *) echo "MGRAPH_DEVICE is $MGRAPH_DEVICE; it is gpu or cpu" >&2; exit 2 ;;
esac
# a worker waits for its scheduler for so long, and would wait for ever otherwise
worker+=(--death-timeout "${MGRAPH_START_SECONDS:-120}" --no-dashboard --scheduler-file "$MGRAPH_SCHEDULER_FILE")
# srun forwards USR1 to every process of its tasks; a task takes it as the order to close its workers, which ignore it
task='trap "" USR1; "$@" & trap "kill -TERM $!" USR1; trap : TERM; while kill -0 $! 2>/dev/null; do wait $!; done'
srun --overlap --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --kill-on-bad-exit=0 bash -c "$task" task \
  "$python" -m dask "${worker[@]}" ${network[@]+"${network[@]}"} ${MGRAPH_WORKER_OPTIONS:-} &
workers=$!

in_front() {  # in the background, and waited for: bash runs no trap before a foreground command has ended
  local status=0
  "$@" &
  command=$!
  wait "$command" || status=$?
  command=''
  return "$status"
}
in_front "$python" -m cluster wait --workers "$MGRAPH_WORKERS" --timeout "${MGRAPH_START_SECONDS:-120}"
in_front "$@"

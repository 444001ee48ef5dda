#!/bin/sh
# Prolog of slurm.conf: measures a node that is about to get work, while nothing else runs there.
# A fail that blames the node drains it and sends the job to another one.
here=${0%/*}

# slurmd drains the node for whatever is not a 0: also for an error in this script.
verdict=0
trap 'exit "$verdict"' EXIT
. "$here/settings.sh"

leave() {
  say "job $SLURM_JOB_ID: $1"
  exit
}

others=$(timeout "$ask_s" squeue -h -w "$node" -t R,S,CG,CF -o %A) ||
  leave "not measured: squeue did not say what else runs here"
for job in $others; do
  [ "$job" = "$SLURM_JOB_ID" ] || leave "not measured: job $job is here too"
done

unset CUDA_VISIBLE_DEVICES # the job's GPUs; asked about is the node
if ! { mkdir -p "$results" && rm -f "$results/preflight.json"; }; then
  leave "not measured: $results cannot be written"
fi
said=$(PREFLIGHT_REPORT_DIR=$results NODE_NAME=$node timeout -k 5 "$limit_s" "$preflight" run \
  --thresholds "$thresholds" --exit-on node --quiet </dev/null 2>&1)
code=$?
said=$(printf '%s' "$said" | tr '\n' ' ' | cut -c 1-500)

case $code in
  0) ;;
  1)
    # Python exits 1 too where it cannot even start preflight: the report has to say the same.
    why=$(sh "$here/last-result.sh" failed "$results/preflight.json")
    [ $? = 1 ] || leave "exit code 1 without a report that blames the node, nothing drained: $said"
    say "job $SLURM_JOB_ID: $said"
    sh "$here/drain.sh" "$why" && verdict=1
    ;;
  2) leave "options or thresholds are wrong, nothing drained: $said" ;;
  3) leave "undecided, nothing drained: $said" ;;
  124 | 137) leave "preflight took more than $limit_s s, nothing drained" ;;
  *) leave "preflight ended with $code, nothing drained: $said" ;;
esac

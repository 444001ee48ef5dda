#!/bin/sh
# For the pipeline: measures the nodes named on standard input, each once.
#     kubectl get nodes -l nvidia.com/gpu.present=true -o name | sh fleet/run.sh NAMESPACE [FOLDER]
# FOLDER: fleet, or fleet-host-path beside it. Prints node, exit code and verdict, one line each.
# Exit code 0: all nodes passed; 1: at least one did not, or was not measured; 2: nothing was
# started; 3: the cluster did not do as it was told.
set -eu
verdict=3
trap 'exit "$verdict"' EXIT
namespace=$1
folder=${2:-$(dirname "$0")}
job=preflight-fleet
label=batch.kubernetes.io/job-name=$job
index='.metadata.labels.batch\.kubernetes\.io/job-completion-index'
ended='.status.containerStatuses[0].state.terminated'
waiting='{range .items[?(@.spec.schedulingGates)]}{.metadata.name} {'$index'}{"\n"}{end}'
verdicts='{range .items[*]}{.spec.nodeName} {'$ended'.exitCode} {'$ended'.message}{"\n"}{end}'
nodes=$(sed 's|^node/||' | sort -u)
if [ -z "$nodes" ]; then
  echo "no node named on standard input" >&2
  verdict=2
  exit
fi
count=$(printf '%s\n' "$nodes" | wc -l)

# The job of an earlier run, finished or not, must not be taken for this one.
if kubectl -n "$namespace" get job "$job" >/dev/null 2>&1; then
  echo "job $job exists: delete it first; its logs go with it" >&2
  verdict=2
  exit
fi
kubectl kustomize "$folder" | sed "s/^  completions: 1\$/  completions: $count/" |
  kubectl -n "$namespace" apply -f - >&2

# Pods wait at a gate. Each gets the node that its completion index names, also a second try's.
pin() { # pod, node
  kubectl -n "$namespace" patch pod "$1" --type=json -p '[{"op": "add", "path": "/spec/affinity",
    "value": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
      {"nodeSelectorTerms": [{"matchFields":
        [{"key": "metadata.name", "operator": "In", "values": ["'"$2"'"]}]}]}}}},
    {"op": "remove", "path": "/spec/schedulingGates"}]' >&2
}
state=
# The Job's own deadline ends it after 4 hours; this one is for a cluster that does not.
for _ in $(seq 3000); do
  kubectl -n "$namespace" get pods -l "$label" -o "jsonpath=$waiting" |
    while read -r pod index; do
      pin "$pod" "$(printf '%s\n' "$nodes" | sed -n "$((index + 1))p")"
    done || : # a pod that is gone again; the next round sees the others
  state=$(kubectl -n "$namespace" get job "$job" \
    -o 'jsonpath={.status.conditions[?(@.status=="True")].type}') || : # asked again in a moment
  case "$state" in *Complete* | *Failed*) break ;; esac
  sleep "${POLL_S:-5}"
done

kubectl -n "$namespace" get pods -l "$label" -o "jsonpath=$verdicts"
case "$state" in *Complete*) verdict=0 ;; *) verdict=1 ;; esac

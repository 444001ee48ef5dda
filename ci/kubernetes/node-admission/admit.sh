#!/bin/sh
# For the pipeline: measures one node and takes its startup taint off when it passed.
#     sh node-admission/admit.sh NAMESPACE NODE [preflight.xml]
# Exit codes are preflight's; 3 also when there is no report or the cluster does not do as it is
# told. The taint stays unless it is 0.
set -eu
namespace=$1 node=$2 junit=${3:-preflight.xml}
here=$(dirname "$0")
job=preflight-admission-$node

# A kubectl that fails ends this with a 1 of its own, which would blame the node.
verdict=3
trap 'exit "$verdict"' EXIT

# The verdict of an earlier run must not be taken for this one's.
rm -f "$junit"
kubectl -n "$namespace" delete job "$job" --ignore-not-found
kubectl kustomize "$here" | sed "s/gpu-node-1/$node/" | kubectl -n "$namespace" apply -f -

state=
# The Job's own deadline ends it after 20 minutes; this one is for a cluster that does not.
for _ in $(seq 300); do
  state=$(kubectl -n "$namespace" get job "$job" \
    -o 'jsonpath={.status.conditions[?(@.status=="True")].type}') || : # asked again in a moment
  case "$state" in *Complete* | *Failed*) break ;; esac
  sleep "${POLL_S:-5}"
done

# An undecided first try has a second one: the last pod's word counts.
pod=$(kubectl -n "$namespace" get pods -l "batch.kubernetes.io/job-name=$job" \
  --sort-by=.metadata.creationTimestamp -o name | tail -n 1)
# A log has notes too, which are no XML.
[ -z "$pod" ] || kubectl -n "$namespace" logs "$pod" |
  sed -n '/^<?xml/,/<\/testsuites>/p' >"$junit" || :
if ! grep -qs '<testsuites' "$junit"; then
  echo "$node: no report; see: kubectl -n $namespace describe job $job" >&2
  exit
fi
case "$state" in
  *Complete*)
    kubectl taint node "$node" preflight/unchecked:NoSchedule-
    verdict=0
    exit
    ;;
esac
code=$(kubectl -n "$namespace" get "$pod" \
  -o 'jsonpath={.status.containerStatuses[0].state.terminated.exitCode}')
case "$code" in 1 | 2) verdict=$code ;; esac

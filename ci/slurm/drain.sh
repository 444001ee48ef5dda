#!/bin/sh
# drain.sh REASON: drains this node. 0: it is drained; 1: it is not, and the log says why.
# A twentieth of a partition, at least two nodes, is as much as may carry our reason at a time:
# where more would, it is rather the measurement that is broken.
. "${0%/*}/settings.sh"

ask() { timeout "$ask_s" "$@"; }

# This node, "open" or "drained", and whether there is "room" for it, else why not.
look() {
  nodes=$(ask sinfo -a -h -N -o '%R|%N|%T|%E') || return
  printf '%s\n' "$nodes" | awk -F '|' -v node="$node" '
    $2 == node { mine[$1]; state = $3 ~ /^dr/ ? "drained" : "open" }
    $2 != node && $4 ~ /^preflight: / { ours[$1]++ }
    { all[$1]++ }
    END {
      room = "room"
      for (name in mine) {
        most = int(all[name] / 20)
        if (ours[name] >= (most < 2 ? 2 : most)) room = ours[name] " of " all[name] \
          " nodes of " name " are drained by preflight; look at them first"
      }
      print state, room
    }'
}

seen=$(look)
case $seen in
  "open room") ;;
  drained*)
    say "drained before this: $1"
    exit 0
    ;;
  open*)
    say "not drained ($1): ${seen#open }"
    exit 1
    ;;
  *)
    say "not drained ($1): sinfo did not say how many are"
    exit 1
    ;;
esac
if ! ask scontrol update NodeName="$node" State=DRAIN Reason="preflight: $1"; then
  say "not drained ($1): scontrol failed"
  exit 1
fi
# Many nodes may have looked at once and seen room: who now sees none steps back.
seen=$(look)
case $seen in
  *" are drained by preflight; "*)
    if ask scontrol update NodeName="$node" State=UNDRAIN; then
      say "not drained ($1): ${seen#* }"
      exit 1
    fi
    ;;
esac
touch "$results/drained" # for the health check: this result has had its effect
say "drained: $1"
exit 0

#!/bin/sh
# HealthCheckProgram of slurm.conf: drains a node by what preflight last said about it. It measures
# nothing and undrains nothing.
here=${0%/*}
. "$here/settings.sh"

report=$results/preflight.json
said=$(sh "$here/last-result.sh" failed "$report")
case $? in
  0) exit 0 ;;
  1) ;;
  *)
    say "$said; nothing changed"
    exit 0
    ;;
esac
# One result drains once: who resumes the node after that has the last word.
if [ -e "$results/drained" ] && [ -z "$(find "$report" -newer "$results/drained")" ]; then
  exit 0
fi
sh "$here/drain.sh" "$said"
exit 0

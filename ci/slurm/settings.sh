# shellcheck shell=sh disable=SC2034
# What prolog.sh, healthcheck.sh and drain.sh share. The first two are the names to change.

preflight=/opt/preflight/bin/preflight
thresholds=quick # or a file of yours: `extends: quick`, and how many GPUs a node has

results=/var/lib/preflight # the last result; a folder on the node's own disk
node=${SLURMD_NODENAME:-$(hostname -s)}
limit_s=60 # for all of preflight, which takes 10 s and gives up after 30
ask_s=10   # for one question to slurmctld

# slurmd gives its scripts no PATH, and the health check no SLURM_CONF.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
# SLURM_CONF=/etc/slurm/slurm.conf
export PATH SLURM_CONF

say() { # to slurmd, which logs it only when the script fails, and to the system's log
  echo "preflight: $node: $1" >&2
  logger -t preflight -- "$node: $1" 2>/dev/null
}

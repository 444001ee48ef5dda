#!/bin/sh
# What preflight last said about this node, for node-problem-detector: it measures nothing.
# last-result.sh failed       0: it passed; 1: it failed and blames the node; 2: neither is known
# last-result.sh no-result    0: one of the two is known, or will be in a moment; 1: not
# The first line says why in at most 80 characters: node-problem-detector cuts the rest.

question=$1
report=${2:-/var/lib/preflight/preflight.json}
most_s=86400
run_s=1200 # activeDeadlineSeconds of the Job that writes the report, doubled

answer() { # failed's exit code, no-result's, text
  [ "$question" = no-result ] && code=$2 || code=$1
  printf '%s\n' "$3" | LC_ALL=C tr -cd '\n -~' | LC_ALL=C cut -c 1-80
  exit "$code"
}
unknown() { answer 2 1 "$1"; }
# A key at the top of the document is two blanks from the edge, and one of its options six.
value() { LC_ALL=C sed -n "s/^$1\"$2\": \"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}\$/\1/p" "$report"; }

[ -e "$report" ] || unknown "no result: preflight never ran here, or its report is gone"
[ -f "$report" ] && [ -r "$report" ] || unknown "no result: $report cannot be read"
written=$(stat -c %Y "$report")
age_s=$(($(date +%s) - written))
[ "$age_s" -ge -300 ] || unknown "no result: the report is from the future; a clock was wrong"
[ "$age_s" -le "$most_s" ] || unknown "no result: the last is $((age_s / 3600)) h old; run preflight again"
[ "$(tail -n 1 "$report")" = "}" ] || unknown "no result: the report is not a whole one"

why=$(value '  ' reason | sed 's/\\\(["\\]\)/\1/g')
case "$(value '  ' complete) $(value '  ' exit_code) $(value '  ' outcome)" in
  "true 0 pass" | "true 0 warn") answer 0 0 "passed $((age_s / 60)) min ago" ;;
  "true 1 "*)
    [ "$(value '      ' exit_on)" = node ] || unknown "no result: run with --exit-on any: $why"
    answer 1 0 "$why"
    ;;
  # A node that failed must not open while it is measured again.
  "false "*)
    [ "$age_s" -le "$run_s" ] && answer 2 0 "preflight is measuring"
    unknown "no result: the last run did not reach its end"
    ;;
  "true "*) unknown "no verdict: $why" ;;
  *) unknown "no result: the report is not one of preflight's" ;;
esac

#!/bin/sh
# Rows of the scorecard whose script no test runs otherwise print their figure; whether it is reached is a matter of the machine.
# scorecard.sh BUILD ROW...
set -u
build=$1
shift
bench=$(cd "$(dirname "$0")/../../bench" && pwd)/reliability
for number in "$@"; do
    told=$("$bench" "$number" --build "$build" 2>&1)
    echo "$told"
    echo "$told" | grep -q '^  figure ' || { echo "row $number has no figure"; exit 1; }
done

# A line a check; what differs by machine is cut off.
trireme doctor -n 2 >out
code=$?
sed 's/^\(ok\|note\|warn\)  *\([a-z/ ]*[a-z]\)  .*wanted: /RESULT \2; wanted: /; /^ *fix: /d; s/^verdict: .*/VERDICT/' out
exit $code

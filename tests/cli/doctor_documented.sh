# Each check has its line in docs/doctor.md.
trireme doctor --help | sed -n '/^checks/,$s/^  \([a-z/]*\( [a-z]*\)*\)  .*/\1/p' >checks
wc -l <checks
while read -r check; do grep -q "^| $check |" "$EXAMPLES/../docs/doctor.md" || echo "docs/doctor.md does not tell of '$check'"; done <checks

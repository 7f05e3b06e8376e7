trireme --help >/dev/full
echo "exit $?"
trireme sim all_reduce --ranks 4 --sizes 1k --json >/dev/full
echo "exit $?"
printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 64, synthetic_width: 2}\ntrain: {steps: 2}\n' >c.yaml
trireme train c.yaml --out run >/dev/full 2>/dev/full
echo "exit $?"
trireme eval run --json >/dev/full
echo "exit $?"
printf '1,2\n' >x.csv
trireme predict run x.csv >/dev/full 2>said
echo "exit $?"; grep error said
trireme --version >/dev/full
echo "exit $?"

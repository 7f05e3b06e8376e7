printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 64}\n' >c.yaml
printf 'config: c.yaml\ntrials: 2\nsearch: random\nspace: {optim.lr: {choice: [1e6, 9e5]}}\n' >s.yaml
trireme tune s.yaml --out out >/dev/null 2>said
echo "exit $?"
grep error said

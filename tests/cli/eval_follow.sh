printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
# whatever moved the weights, and wherever the run is
trireme train c.yaml --out run checkpoint.every_steps=10 -n 2 --servers 1 >/dev/null 2>&1
trireme eval run --follow
echo "exit $?"
cut -d, -f1 run/evaluator.jsonl
trireme eval run --follow data.test_limit=5 >/dev/null
cat run/evaluator.jsonl | wc -l
trireme eval run | head -2
trireme eval nothing --follow --patience 1
trireme eval run --follow --json
trireme eval run --patience 5

printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml --out run checkpoint.every_steps=10 >/dev/null 2>&1
trireme info run/

printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml -n 2 --out run 2>/dev/null
ls run run/checkpoints/*

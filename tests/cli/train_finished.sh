printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 32, epochs: 1, threads: 1}\n' >c.yaml
trireme train c.yaml --out run 2>/dev/null
trireme train --resume run 2>/dev/null

printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 640, synthetic_width: 3}\ntrain: {batch: 64, epochs: 1}\n' >c.yaml
trireme train c.yaml --out run optim.momentum=0 >/dev/null 2>&1
trireme info run/checkpoints/step-00000010 --json && trireme info run --json

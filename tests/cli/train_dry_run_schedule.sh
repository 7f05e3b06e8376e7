printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 10}\n' >c.yaml
trireme train c.yaml --dry-run optim.schedule=wsd optim.warmup_steps=10 optim.min_lr=0.01 | grep '^#' | grep -v memory
trireme train c.yaml --dry-run optim.schedule=cosine optim.schedule_steps=50 optim.final_lr_fraction=0.1 optim.decay=weights optim.weight_decay=0.1 \
    'optim.groups=[{match: "fc2.*", lr_scale: 0.5, weight_decay: 0}]' >out
echo "exit $?"
grep '^#' out | grep -v memory
grep groups out
# what was printed is a configuration
trireme train out --dry-run | grep groups
trireme train c.yaml --dry-run optim.min_lr=1
echo "exit $?"
trireme train c.yaml --dry-run 'optim.groups=[{match: "*.bais"}]' | grep groups
trireme train c.yaml --out run 'optim.groups=[{match: "*.bias", decay: 0}]'

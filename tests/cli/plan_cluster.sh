cat >c.yaml <<'END'
model: {name: gpt2, n_layer: 4, n_head: 4, n_embd: 128}
data: {name: synthetic, synthetic_tokens: true, synthetic_width: 64, classes: 256}
train: {batch: 32, shards: 8, isa: avx2} # kernels decide the memory of activations
optim: adam
END
cat >cluster.yaml <<'END'
hosts: [{name: node, count: 2, workers: 4, gflops: 50, memory_gib: 0.25, memory_gb_s: 10, price: 2}]
links: {local: {gb_s: 5, latency_us: 2}, network: {gb_s: 0.1, latency_us: 50}}
END
trireme plan c.yaml --cluster cluster.yaml
echo "--- a run of the first gpipe says itself what its activations take"
planned=$(trireme plan c.yaml --cluster cluster.yaml --json --all |
    sed -n '/"tensor":2,"pipeline":2,"sync":"zero1","schedule":"gpipe"/s/.*"activations":\([0-9]*\).*/\1/p')
trireme train c.yaml -n 8 --dry-run parallel.tensor=2 parallel.tensor_parts=2 parallel.pipeline=2 parallel.schedule=gpipe |
    awk -v planned="$planned" '/^# memory/ { sub(/.*activations /, ""); print ($1 == sprintf("%.1f", planned / 1048576) \
        ? "as planned" : $0 ", but planned: " planned) }'
echo "--- fewer workers, dearer, without what cannot be"
trireme plan c.yaml --cluster cluster.yaml -n 2 --price 100 parallel.pipeline=1
echo "--- parts are fixed, and one mesh wanted"
trireme plan c.yaml --cluster cluster.yaml parallel.tensor_parts=4 parallel.data=2 parallel.pipeline=1 --json
ls

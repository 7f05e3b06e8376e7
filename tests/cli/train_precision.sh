# a precision that changes nothing is told, once
printf 'model: {layers: [{reshape: [8, 8, 1]}, {conv2d: {out: 4, kernel: 3}}, relu, flatten, {linear: classes}]}\ndata: {name: synthetic, synthetic_count: 64, synthetic_width: 64}\ntrain: {batch: 16, shards: 4, steps: 2, threads: 1}\n' >conv.yaml
printf 'model: {name: mlp, hidden: [8]}\ndata: {name: synthetic, synthetic_count: 64, synthetic_width: 64}\ntrain: {batch: 16, shards: 4, steps: 2, threads: 1}\n' >mlp.yaml
for words in 'conv.yaml train.precision=bf16' 'conv.yaml train.precision=f16 -n 2' 'conv.yaml' 'mlp.yaml train.precision=bf16'; do
    trireme train $words --out run >log 2>&1
    echo "$words: exit code $?"
    grep -o 'train.precision.*' log
    rm -rf run
done

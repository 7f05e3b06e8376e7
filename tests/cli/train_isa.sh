# ranks on unlike processors compute with what all of them have, and have the weights of a run with that alone
printf 'model: {name: cnn, channels: [8, 8], hidden: 16}\ndata: {name: fashion-mnist, limit: 256, test_limit: 32}\ntrain: {batch: 64, shards: 4, epochs: 1, threads: 1}\n' >c.yaml
weights() { sed -n 's/.*weights: xxh3 //p'; }
generic=$(trireme train c.yaml train.isa=generic --out one 2>&1 | weights)
trireme launch -n 2 -- sh -c 'trireme train c.yaml train.isa=$([ "$RANK" = 1 ] && echo generic || echo auto) --out two' >log 2>&1
echo "exit code $?"
grep -o 'processors differ.*' log
[ -n "$generic" ] && [ "$(weights <log)" = "$generic" ] && echo 'the weights of generic'
trireme launch -n 2 -- sh -c 'trireme train c.yaml train.isa=$([ "$RANK" = 1 ] && echo generic || echo native) --out three' >log 2>&1
grep -o 'rank 1 has another instruction set[a-zA-Z ]*than rank 0' log | head -1
trireme train c.yaml train.isa=avx3 --out four 2>&1 | grep isa
echo '--- a run that is resumed keeps its instruction set'
trireme train c.yaml train.steps=2 train.isa=generic --out five >/dev/null 2>&1
trireme train --resume five train.steps=3 2>&1 | grep -c 'made with other kernels'
grep -o '"bits":"[^"]*"' five/checkpoints/step-00000003/manifest.json
echo '--- a checkpoint of other kernels is continued with a warning, and the run is marked'
trireme train --resume five train.steps=0 train.isa=native 2>&1 | grep -o 'made with other kernels'
grep -o '"bits":"[^"]*"' five/checkpoints/step-00000004/manifest.json

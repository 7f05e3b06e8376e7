# a loss that grows by orders of magnitude is warned of once, with what may help; the run goes on
awk 'BEGIN { print "a,b,y"; for (i = 0; i < 64; i++) printf "%d,%d,%d\n", 40 + i % 7, (i * 5) % 11 - 30, i % 2 }' >d.csv
printf 'model: {name: mlp, hidden: [8]}\ndata: {path: d.csv, normalize: none}\ntrain: {batch: 16, shards: 4, epochs: 10, threads: 1}\noptim: {lr: 30}\n' >c.yaml
weights() { sed -n 's/.*weights: xxh3 //p'; }
told() { grep -c 'the loss has grown from' log; }
trireme train c.yaml --out one >log 2>&1
echo "exit code $?: $(told)"
grep -o 'the loss has grown.*' log | sed 's/[0-9][0-9.e+]* to [0-9.e+]*/A to B/'
for words in '-n 3' '-n 2 --servers 1' '-n 2 --elastic 1:2' '-n 2 parallel.sync=local parallel.local_steps=4'; do
    trireme train c.yaml $words --out run >log 2>&1
    echo "$words: exit code $?: $(told)"
    rm -rf run
done
trireme train c.yaml optim.lr=0.001 --out three >log 2>&1
echo "small rate: exit code $?: $(told)"

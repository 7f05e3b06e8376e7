# more threads than can be are not taken from the environment, which is told once
printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, steps: 3}\n' >c.yaml
weights() { sed -n 's/.*weights: xxh3 //p'; }
one=$(trireme train c.yaml train.threads=1 --out one 2>/dev/null | weights)
for words in OMP_NUM_THREADS=100000 OMP_NUM_THREADS=2147483647; do
    env $words trireme train c.yaml --out two >log 2>&1
    echo "exit code $?: $(grep -c 'threads are too many for' log)"
    [ -n "$one" ] && [ "$(weights <log)" = "$one" ] && echo 'the weights of one thread'
    rm -rf two
done
OMP_NUM_THREADS=100000 trireme train c.yaml train.threads=2 --out three 2>&1 | grep -c 'too many'
OMP_NUM_THREADS=2 OMP_THREAD_LIMIT=1 trireme train c.yaml --out four 2>/dev/null | weights | grep -cx "$one"
trireme train c.yaml train.threads=100000 --out five 2>&1 | grep threads
# threads sleep soon when they wait, unless somebody else has decided
env -u GOMP_SPINCOUNT -u OMP_WAIT_POLICY trireme train c.yaml train.steps=0 train.epochs=1000000 --out seven >started 2>&1 &
until [ -s started ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
grep -az '^GOMP_SPINCOUNT=' /proc/$!/environ | tr '\0' '\n'
cat /proc/$!/comm
kill -KILL $!
wait $! 2>/dev/null
true

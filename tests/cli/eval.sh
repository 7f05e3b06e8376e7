printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml --out run parallel.data=1 checkpoint.every_steps=10 checkpoint.keep_best=true >/dev/null 2>&1
trireme eval run
echo "exit $?"
# any number of workers: the same figures
for n in 1 2 3; do
    trireme eval run/checkpoints/step-00000010/ -n $n --json | sed 's/"samples_per_s":[^}]*/"samples_per_s":N/'
done
trireme eval run/best --train train.eval_batches=2
trireme eval run data.synthetic_count=80 data.test_limit=5 | grep samples

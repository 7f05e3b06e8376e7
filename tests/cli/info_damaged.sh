printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 6}\n' >c.yaml
trireme train c.yaml --out run checkpoint.every_steps=10 checkpoint.keep=9 >/dev/null 2>&1
cd run/checkpoints
truncate -s -1 step-00000010/model.safetensors
printf X | dd of=step-00000020/optimizer.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null
sed -i 's/"step":30/"step":31/' step-00000030/manifest.json
rm step-00000040/manifest.json
mv step-00000050 step-00000055
for step in 10 20 30 40 55 60; do
    trireme info step-000000$step
    echo "exit $?"
done
cd ../..
trireme info run --json
trireme info run

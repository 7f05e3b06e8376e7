printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 6}\ncheckpoint: {levels: [{to: far, every_steps: 30, keep: 9}]}\n' >c.yaml
trireme train c.yaml --out run checkpoint.every_steps=10 checkpoint.keep=2 checkpoint.keep_every=20 >/dev/null 2>&1
trireme ckpt list run
cd run/checkpoints
printf X | dd of=step-00000020/optimizer.safetensors bs=1 seek=600 conv=notrunc 2>/dev/null
printf X | dd of=step-00000020/optimizer.safetensors bs=1 seek=1065 conv=notrunc 2>/dev/null
printf Y | dd of=step-00000040/model.safetensors bs=1 seek=20 conv=notrunc 2>/dev/null
cp step-00000040/optimizer.safetensors step-00000050/optimizer.safetensors
printf more >>step-00000060/model.safetensors
cd ../..
trireme ckpt list run
trireme ckpt verify run
echo "exit $?"
trireme ckpt verify run --json
trireme ckpt verify far/run/step-00000030
echo "exit $?"
mkdir -p far/run/.step-00000030.gone.tmp/left far/run/.step-00000010.gone.tmp
trireme ckpt prune run --keep 1
find far/run -name '.step-*'
trireme ckpt list run/checkpoints
trireme train --resume run train.epochs=7 2>&1 | grep -e 'passed over' -e 'continuing' | cut -c 20-
trireme ckpt prune far/run --keep 1 --keep-every 30
trireme ckpt list far/run --json

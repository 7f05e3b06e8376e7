printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml --out run checkpoint.every_steps=10 >/dev/null 2>&1
tell() {
    trireme "$@" 2>&1
    echo "exit $?"
}
tell eval
tell eval nowhere
tell eval c.yaml
mkdir empty
tell eval empty
tell predict empty
tell eval run extra
tell eval run data.synthetic_width=7
tell eval run data.classes=20
trireme eval run -n 2 data.classes=20 2>&1 | grep -o 'the model knows 10 classes, the data to evaluate has 20' | head -1
tell eval run model.hidden=[8]
tell eval run --hosts here
cp -r run/checkpoints/step-00000020 alone
tell eval alone
trireme eval alone --config c.yaml | head -3
cp -r run spoilt
echo 'sample: [x]' >spoilt/dataset.yaml
tell eval spoilt
tell predict spoilt
rm spoilt/dataset.yaml
trireme eval spoilt | grep loss
# a damaged one is passed over, unless it is asked for
printf X | dd of=run/checkpoints/step-00000020/model.safetensors bs=1 seek=300 conv=notrunc 2>/dev/null
trireme eval run | head -1
tell eval run/checkpoints/step-00000020
tell predict run/checkpoints/step-00000020
rm run/checkpoints/step-00000010/manifest.json
tell eval run
tell eval run/checkpoints/step-00000010

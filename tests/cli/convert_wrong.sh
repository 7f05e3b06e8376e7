FIXTURES=$EXAMPLES/../tests/unit/interop/fixtures
trireme convert --help
trireme convert $FIXTURES/gpt2
trireme convert nowhere ours
trireme convert $FIXTURES/gpt2 ours --to onnx
trireme convert $FIXTURES/gpt2 ours --dtype i8
trireme convert $FIXTURES/gpt2 ours --shard-size none
mkdir full empty && touch full/file
trireme convert $FIXTURES/gpt2 full
trireme convert empty ours
printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 64, epochs: 1}\n' >c.yaml
trireme train c.yaml --out run >/dev/null 2>&1
trireme convert run ours

model=$EXAMPLES/../tests/unit/generate/fixtures/gpt2
trireme generate
trireme generate nowhere
mkdir empty; trireme generate empty
cp $model/model.safetensors empty; trireme generate empty
cp $model/config.json empty; trireme generate empty
trireme generate $model --promt x
trireme generate $model --prompt x --prompt-file y
trireme generate $model --batch x --echo
trireme generate $model --at-once 3
trireme generate $model --temperature hot
trireme generate $model --temperature -1
trireme generate $model --top-p 1.5
trireme generate $model --dtype f16
trireme generate $model --device gpu
trireme generate $model --prompt-file nowhere
trireme generate $model --prompt aaaaaaaaaa --context 9
trireme generate $model --prompt a --context 9 --slide 10
trireme generate $model --tokenizer byte --prompt caf~
printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 64, epochs: 1}\n' >c.yaml
trireme train c.yaml --out mlp >/dev/null 2>&1
trireme generate mlp

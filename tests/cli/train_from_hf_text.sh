cp -r $EXAMPLES/../tests/unit/generate/fixtures/gpt2 hf
echo '{{ messages }}' >hf/chat_template.jinja
echo '{"eos_token": "<|endoftext|>", "model_max_length": 48}' >hf/tokenizer_config.json
echo '{"eos_token_id": [98]}' >hf/generation_config.json
for i in 1 2 3 4 5 6 7 8; do echo "$i. The same words for all, and 0123456789 once more."; done >text.txt
printf 'data: {path: text.txt, context: 16}\ntrain: {batch: 4, shards: 2, epochs: 1, threads: 1}\noptim: {name: adamw, lr: 0.001}\n' >c.yaml
trireme train c.yaml model.from=hf -n 2 --out run 2>/dev/null | grep -v "epoch\|^test\|samples/s"
mv hf gone # a run needs its source no more
for file in tokenizer.json chat_template.jinja tokenizer_config.json generation_config.json; do cmp gone/$file run/$file; done
trireme eval run | grep -c perplexity
trireme train --resume run train.epochs=2 2>&1 | grep -c "weights: xxh3"
trireme convert run out >/dev/null
trireme convert run/checkpoints/step-00000012 out_of_checkpoint >/dev/null || ls run/checkpoints
for out in out out_of_checkpoint; do
    for file in tokenizer.json chat_template.jinja tokenizer_config.json generation_config.json; do cmp gone/$file $out/$file; done
done
echo "--- other tokens: what came with the model does not fit"
trireme train c.yaml model.from=gone data.tokenizer=char --out chars 2>&1 | grep -o "warn.*"
ls chars | grep -c "chat_template\|tokenizer_config"
trireme train c.yaml model.from=gone --dry-run | grep tokenizer
echo "--- an end that config.json alone states"
cp -r gone plain
sed -i 's/<|endoftext|>/[END]/' plain/tokenizer.json
echo '{"temperature": 0.5}' >plain/generation_config.json
rm plain/tokenizer_config.json
trireme train c.yaml model.from=plain train.steps=1 --out plain_run 2>&1 | grep -c "weights: xxh3"
cat plain_run/generation_config.json
cmp plain/tokenizer.json plain_run/tokenizer.json

FIXTURES=$EXAMPLES/../tests/unit/interop/fixtures
printf 'data: {name: synthetic, synthetic_tokens: true, synthetic_count: 32, synthetic_width: 8, classes: 19}\ntrain: {batch: 8, epochs: 1}\noptim: {name: adamw, lr: 0.001}\n' >c.yaml
trireme train c.yaml model.from=$FIXTURES/llama "model.freeze=['model.layers.0.*']" -n 2 --out run 2>/dev/null | grep -v epoch | sed "s#$EXAMPLES#EXAMPLES#"
ls run
trireme convert run back
diff $FIXTURES/llama/config.json back/config.json && echo same config.json
trireme train c.yaml model.from=$FIXTURES/llama model.name=gpt2 2>&1 | sed "s#$EXAMPLES#EXAMPLES#"
trireme train c.yaml --dry-run model.from=$FIXTURES/gpt2 | sed -n "1,/from/p" | sed "s#$EXAMPLES#EXAMPLES#"

FIXTURES=$EXAMPLES/../tests/unit/interop/fixtures
trireme convert $FIXTURES/llama ours
ls ours
trireme convert ours back --shard-size 6k --json
ls back
cmp $FIXTURES/llama/config.json back/config.json && echo same config.json
trireme convert $FIXTURES/llama half --to hf --dtype bf16
grep dtype half/config.json
trireme info back | head -3
trireme info half --json | cut -c1-75

model=$EXAMPLES/../tests/unit/generate/fixtures/gpt2
cat >c.yaml <<END
model: {from: $model}
data: {name: synthetic, synthetic_tokens: true, synthetic_width: 16, classes: 99, synthetic_count: 256}
train: {batch: 32, shards: 4, epochs: 1, eval_every: 0}
END
trireme train c.yaml --out plain 2>/dev/null | grep weights: >plain.txt
trireme train c.yaml --out told -n 2 train.sample_every=3 train.sample_tokens=6 'train.sample_prompt=On: "x"' 2>/dev/null >told.txt
grep -c '^  | On: "x".' told.txt; grep sample.after told.txt
grep -h weights: told.txt | cmp - plain.txt && echo the same weights
grep -h '  | ' told.txt >texts.txt
for layout in parallel.sync=zero3 parallel.pipeline=2; do
  trireme train c.yaml --out spread -n 2 $layout train.sample_every=3 train.sample_tokens=6 'train.sample_prompt=On: "x"' 2>/dev/null >spread.txt
  grep -h weights: spread.txt | cmp - plain.txt && grep -h '  | ' spread.txt | cmp - texts.txt && echo "the same weights and texts with $layout"
  rm -r spread
done
grep -c '"sample_prompt":"On: \\"x\\"","sample":".' told/metrics.jsonl
trireme train c.yaml --out other train.sample_every=3 train.sample_prompt=ß 2>&1 | grep -v info | grep -v warn
sed -i 's/from: .*}/name: gpt2, n_layer: 1, n_head: 1, n_embd: 8}/' c.yaml
trireme train c.yaml --out none train.sample_every=3 2>&1 | grep -v info
printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 64, sample_every: 1}\n' >c.yaml
trireme train c.yaml --out mlp 2>&1 | grep -v info
cp $model/tokenizer.json told/
trireme generate told --prompt On --max-tokens 4 --temperature 0 2>/dev/null >run.txt
trireme generate told/checkpoints/* --prompt On --max-tokens 4 --temperature 0 2>/dev/null | cmp - run.txt
wc -l <run.txt

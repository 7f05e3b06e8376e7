cat >c.yaml <<'END'
model: {name: mlp, hidden: [32]}
data: {name: synthetic}
train: {shards: 4, batch: 32, steps: 3, threads: 1}
parallel: auto
END
trireme train c.yaml -n 2 --dry-run | grep -e '^# memory' -e layout
trireme train c.yaml -n 2 parallel.pipeline=1 parallel.sync=allreduce --out run 2>/dev/null | grep '^weights' >weights
sed -n '/^parallel:/,/  tensor:/p' run/config.yaml
grep -h 'layout:' run/log/*.log | sed 's/layout: \(data 2\).*/layout: \1/'
echo "--- the same weights as one, and a resumed run does not plan again"
trireme train c.yaml parallel.layout=given --out one 2>/dev/null | grep '^weights' | cmp - weights && echo same
trireme train --resume run train.steps=4 -n 2 2>/dev/null | grep -c '^weights'
grep -h 'layout:' run/log/*.log | wc -l

cat >c.yaml <<'END'
model: {name: mlp, hidden: [32]}
data: {name: synthetic}
train: {shards: 4, batch: 32, steps: 3, threads: 1}
parallel: auto
END
trireme train c.yaml -n 2 --out run | grep '^weights'
grep -A4 '^parallel:' run/config.yaml
grep -h 'layout:' run/log/*.log | sed 's/: .*INFO/ INFO/; s/layout: \(data 2\).*/layout: \1/'
echo "--- the same weights as one, and a resumed run does not plan again"
trireme train c.yaml parallel.layout=given --out one | grep '^weights'
trireme train --resume run train.steps=4 -n 2 | grep -c '^weights'
grep -h 'layout:' run/log/*.log | wc -l
END=
trireme train c.yaml -n 2 --dry-run | grep -A1 '^parallel:'

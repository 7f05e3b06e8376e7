trireme ckpt
echo "exit $?"
trireme ckpt verify
echo "exit $?"
trireme ckpt look .
echo "exit $?"
trireme ckpt verify nowhere
echo "exit $?"
trireme ckpt verify .
echo "exit $?"
trireme ckpt prune .
echo "exit $?"
trireme ckpt prune . --keep 0
echo "exit $?"
printf 'data: synthetic\nmodel: mlp\ncheckpoint: {levels: [{to: a, every_steps: 1}, {too: b}]}\n' >c.yaml
trireme train c.yaml
echo "exit $?"
trireme train c.yaml 'checkpoint.levels=[{to: a}]'
echo "exit $?"
trireme train c.yaml 'checkpoint.levels=[{to: a, every_s: 1}, {to: a, every_s: 2}]'
echo "exit $?"
trireme train c.yaml 'checkpoint.levels=[{to: a, every_s: 1, keep: 0}]'
echo "exit $?"
trireme train c.yaml checkpoint.levels=here

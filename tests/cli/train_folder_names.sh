printf 'model: {name: mlp, hidden: [4]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 32, epochs: 1, threads: 1}\n' >c.yaml
trireme train c.yaml --out runs/lr=0.1 >/dev/null 2>&1
echo "exit $?"
trireme train --resume runs/lr=0.1 -n 2 train.epochs=2 2>&1 | grep -c 'weights: '
cd runs
trireme train --resume lr=0.1 -n 2 train.epochs=3 2>&1 | grep -c 'weights: '
trireme train lr=0.1/config.yaml --out again train.epochs=1 2>&1 | grep -c 'weights: '
trireme train lr=0.2 --out again
echo "exit $?"
long=$(printf '%0200d/%0200d/%0200d/%0200d/%0196d' 0 0 0 0 0)
trireme train ../c.yaml --out $long 2>&1 | grep -c 'weights: '
ls $long
trireme train ../c.yaml --out ${long}1
echo "exit $?"
trireme train --resume ${long}1

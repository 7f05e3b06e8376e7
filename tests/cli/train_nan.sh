printf 'model: {name: mlp}\ndata: {name: synthetic}\n' >c.yaml
trireme train c.yaml optim.lr=1e6 train.epochs=50 >out 2>&1
code=$?
sed 's/step [0-9]* of\|step [0-9]*:/step N:/; s/loss of step [0-9]*/loss of step N/; s/is -*[a-z]*:/is NOT FINITE:/' out | grep -v '^epoch\|INFO\|info'
exit $code

printf 'model: mlp\ndata: {name: synthetic}\n' >c.yaml
printf 'hosts: [{name: a, gflop: 3}]\n' >wrong.yaml
printf 'hosts: [{name: a, gflops: 3}]\n' >one.yaml
trireme plan
echo "exit $?"
trireme plan c.yaml --cluster nowhere.yaml
echo "exit $?"
trireme plan c.yaml --cluster wrong.yaml
echo "exit $?"
trireme plan c.yaml --cluster one.yaml -n 2
echo "exit $?"
trireme plan c.yaml --cluster one.yaml --price much
echo "exit $?"
trireme plan c.yaml --cluster one.yaml --hosts hosts
echo "exit $?"
trireme plan c.yaml -n 3 parallel.data=2 parallel.pipeline=1 train.threads=1 | tail -1

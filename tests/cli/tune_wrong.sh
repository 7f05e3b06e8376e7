printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 64}\n' >c.yaml
try() { printf "$1" >s.yaml; trireme tune s.yaml --out out; echo "exit $?"; }
try 'space: {optim.lr: {log: [1e-3, 1]}}\n'
try 'config: c.yaml\n'
try 'config: absent.yaml\nspace: {optim.lr: {log: [1e-3, 1]}}\n'
try 'config: c.yaml\nserach: tpe\n'
try 'config: c.yaml\nsearch: bayes\nspace: {optim.lr: {log: [1e-3, 1]}}\n'
try 'config: c.yaml\nspace: {optim.lrr: {log: [1e-3, 1]}}\n'
try 'config: c.yaml\nspace: {optim.lr: {log: [0, 1]}}\n'
try 'config: c.yaml\nschedule: asha\nspace: {optim.lr: {log: [1e-3, 1]}}\n'
try 'config: c.yaml\nset: {data.path: /nowhere, data.name: ""}\ntrials: 5\nspace: {optim.lr: {log: [1e-3, 1]}}\n'
trireme tune
trireme tune report .
trireme tune report
trireme top
trireme top nowhere
trireme top .
trireme top . --every x
trireme train c.yaml --hosts x -n 2 train.batch=auto

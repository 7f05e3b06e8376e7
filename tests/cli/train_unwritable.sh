printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic}\n' >c.yaml
touch file
trireme train c.yaml --out file/run

printf 'model: {name: mpl}\ndata: {name: synthetic}\n' >bad.yaml
trireme train bad.yaml

printf 'model: {name: mlp\ntrain: 3\n' >bad.yaml
trireme train bad.yaml

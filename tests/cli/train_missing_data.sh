printf 'model: {name: mlp}\ndata: {path: nowhere, format: idx}\n' >c.yaml
trireme train c.yaml

printf 'model: {name: mlp, hidden: [1000]}\ndata: {name: synthetic}\noptim: adam\n' >c.yaml
trireme train c.yaml --dry-run >one
code=$?
grep '^# memory' one
trireme train one --dry-run -n 5 train.shards=16 train.shards_at_once=1 | grep '^# memory'
trireme train one --dry-run data.name= data.format=idx data.path=nowhere | grep '^# memory'
ls
exit $code

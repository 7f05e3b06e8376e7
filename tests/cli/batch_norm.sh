# a batch norm needs more than one value of a channel in each shard; few are warned of
printf 'model: {layers: [linear: 8, batch_norm: {name: norm}, relu, linear: classes]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 8, epochs: 1, threads: 1}\n' >c.yaml
says() { trireme train c.yaml --out run --overwrite "$@" 2>&1 | grep -e 'batch norm' -e error | sed 's/^[0-9:.]* //'; }
says
says train.shards=4
says data.synthetic_count=6 train.batch=64 train.shards=4
says model.sync_batch_norm=true
says model.sync_batch_norm=true train.batch=1 train.shards=1
says train.batch=64 train.shards=4
says 'model.layers=[reshape: [4, 4, 2], batch_norm, flatten, linear: classes]'

# batch norms are over the whole batch, unless shards are stated; then
# a batch norm needs more than one value of a channel in each shard; few are warned of
printf 'model: {layers: [linear: 8, batch_norm: {name: norm}, relu, linear: classes]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 8, epochs: 1, threads: 1}\n' >c.yaml
says() { trireme train c.yaml --out run --overwrite "$@" 2>&1 | grep -e 'batch norm' -e error | sed 's/^[0-9:.]* //'; }
says
hash() { trireme train c.yaml --out run --overwrite "$@" 2>&1 | grep -o 'xxh3 [0-9a-f]*'; }
[ "$(hash)" = "$(hash train.shards=8 model.sync_batch_norm=true)" ] && [ "$(hash)" = "$(hash -n 3)" ] && echo "the same as model.sync_batch_norm=true, and for 3 workers"
[ "$(hash train.shards=4)" = "$(hash train.shards=4 model.sync_batch_norm=false)" ] && echo "shards are stated: the same as model.sync_batch_norm=false"
grep -c 'sync_batch_norm: true' run/config.yaml
trireme train c.yaml --out run --overwrite >/dev/null 2>&1; grep -o 'sync_batch_norm: true' run/config.yaml
says train.shards_at_once=2
says -n 2 parallel.pipeline=2 | grep error # rank 0 may be stopped before it says the rest
says -n 2 parallel.sync=local parallel.local_steps=2
says model.sync_batch_norm=false
says train.shards=4
says data.synthetic_count=6 train.batch=64 train.shards=4
says model.sync_batch_norm=true
says model.sync_batch_norm=true train.batch=1 train.shards=1
says train.batch=64 train.shards=4
says 'model.layers=[reshape: [4, 4, 2], batch_norm, flatten, linear: classes]'

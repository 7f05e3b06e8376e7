i=0; while [ $i -lt 200 ]; do echo "line $i of a text"; i=$((i + 1)); done >a.txt
printf 'more' >b.txt
trireme data prepare a.txt b.txt --tokenizer char --out tokens --validation 0.2 --threads 2 && ls tokens
trireme data prepare a.txt --tokenizer byte --out bytes --shard-tokens 2000 --json
printf 'model: {layers: [embedding: {rows: 257, width: 4}, linear: classes]}\ndata: {path: bytes, context: 16}\ntrain: {batch: 8, epochs: 1}\n' >c.yaml
trireme train c.yaml -n 2 --out one >one.log 2>&1; trireme train c.yaml --out two data.path=a.txt data.tokenizer=byte >two.log 2>&1
[ "$(grep ^weights one.log)" = "$(grep ^weights two.log)" ] && echo same weights from shards and from the text
cmp bytes/tokenizer.json one/tokenizer.json && echo the tokenizer lies beside the run

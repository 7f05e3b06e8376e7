# JSON lines: texts are tokenized once, other fields are a table; the same weights for any number of workers
for i in $(seq 200); do echo "{\"id\": $i, \"text\": \"line $i of a text, and $((i * i % 17)) more\"}"; done >text.jsonl
for i in $(seq 60); do echo "{\"x\": $((i % 7)).5, \"kind\": \"$((i % 3)) \\\"q\\\"\", \"tags\": [], \"y\": \"$((i * 5 % 3))\"}"; done >table.jsonl
printf 'data: {context: 8}\nmodel: {name: gpt2, n_layer: 1, n_head: 1, n_embd: 8}\ntrain: {batch: 8, shards: 4, epochs: 1, steps: 12, threads: 1}\n' >c.yaml
printf 'data: {ignore: [tags]}\nmodel: {name: mlp, hidden: [4]}\ntrain: {batch: 8, shards: 4, epochs: 2, threads: 1}\n' >m.yaml
hash() { grep -o 'xxh3 [0-9a-f]*' | tail -1; }
one=$(trireme train c.yaml data.path=text.jsonl --out t1 2>&1 | hash)
[ "$(trireme train c.yaml data.path=text.jsonl --out t3 -n 3 2>&1 | hash)" = "$one" ] && echo "3 workers: the same weights"
trireme train c.yaml data.path=text.jsonl --out t5 train.steps=5 >/dev/null 2>&1
[ "$(trireme train c.yaml data.path=text.jsonl --resume t5 --out t12 -n 2 train.steps=12 2>&1 | hash)" = "$one" ] && echo "resumed: the same weights"
ls .trireme | sed 's/tokens-[0-9a-f]*/tokens-HASH/'
trireme data inspect table.jsonl 'data.ignore=[tags]' | tail -8
two=$(trireme train m.yaml data.path=table.jsonl --out m1 2>&1 | hash)
[ "$(trireme train m.yaml data.path=table.jsonl --out m3 -n 3 2>&1 | hash)" = "$two" ] && echo "3 workers: the same weights"
echo "wrong lines are named"
trireme train m.yaml data.path=table.jsonl data.ignore=[] --out none
sed '9s/.*/{"text": "cut/' text.jsonl >cut.jsonl
trireme train c.yaml data.path=cut.jsonl --out none
trireme data prepare cut.jsonl --tokenizer byte --out none

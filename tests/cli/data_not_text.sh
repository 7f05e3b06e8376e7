printf '{"messages": [{"role": "user", "content": "hi"}]}\n{"messages": []}\n' >chats.jsonl
printf '[\n  {"conversations": []}\n]\n' >list.txt
printf '\357\273\277{\n  "a": 1\n}\n' >one.txt
printf '\377\376a\000b\000' >marked.txt
printf 'w\000o\000r\000d\000s\000\n\000' >unmarked.txt
printf '{ this } and [1, 2] are prose\n' >prose.txt
printf 'data: {format: tokens, context: 4}\nmodel: {name: gpt2, n_layer: 1, n_head: 1, n_embd: 8}\ntrain: {batch: 2, shards: 2, epochs: 1, threads: 1}\n' >c.yaml
for file in chats.jsonl list.txt one.txt marked.txt unmarked.txt; do
    trireme data prepare $file --tokenizer byte --out out
    trireme train c.yaml data.path=$file --out run 2>&1 | grep error
done
trireme data prepare prose.txt --tokenizer byte --out prose >/dev/null && echo prose is text
trireme data prepare chats.jsonl --tokenizer byte --as-text --out as_text >/dev/null && echo as it is
trireme train c.yaml data.path=chats.jsonl data.as_text=true --out run2 2>&1 | grep -c weights:
echo "--- endings in capitals, UTF-16 elsewhere, weights that are no safetensors"
printf '0,1,2\n1,0,1\n0,0,2\n1,1,0\n0,1,1\n1,0,0\n0,0,2\n1,1,1\n0,1,0\n' >X.CSV
cp prose.txt PROSE.TXT; mkdir folder; cp X.CSV folder/TRAIN.CSV; cp X.CSV folder/Test.csv
printf 'data: {test: 0.3}\nmodel: {name: mlp, hidden: [4]}\ntrain: {batch: 2, shards: 2, epochs: 1, threads: 1}\n' >m.yaml
trireme train m.yaml data.path=X.CSV --out csv 2>&1 | grep -c weights:
trireme train m.yaml data.path=folder --out csv2 2>&1 | grep -c weights:
trireme train c.yaml data.format=auto data.path=PROSE.TXT --out txt 2>&1 | grep -c weights:
printf '\377\3760\000,\0001\000\n\000' >wide.csv
trireme train m.yaml data.path=wide.csv --out csv3 2>&1 | grep error
printf 'PK\003\004\000\000\000\000\000\000' >net.pt
printf '\200\002}q\000.......' >old.pt
trireme train m.yaml data.path=X.CSV model.from=net.pt --out pt 2>&1 | grep error
trireme train m.yaml data.path=X.CSV model.from=old.pt --out pt 2>&1 | grep error

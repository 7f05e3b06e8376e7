# texts as classes: other data are numbered as the run's were, also where some are missing; unknown ones are told
make() { awk -v kinds="$1" -v n="$2" 'BEGIN { k = split(kinds, kind, "|"); for (i = 0; i < n; i++) { c = kind[i % k + 1]; printf "%d,%d,%d,\"%s\"\n", 3 * (c == "ant"), 3 * (c == "bee"), 3 * (c == "cat, big"), c } }'; }
make 'ant|bee|cat, big' 96 >all.csv
make 'cat, big|bee' 32 >some.csv
make 'bee|dog' 32 >other.csv
sed 's/"ant"/0/; s/"bee"/1/; s/"cat, big"/2/' all.csv >numbers.csv
printf 'model: {name: mlp, hidden: [16]}\ndata: {path: all.csv, test: 0.25}\ntrain: {batch: 24, epochs: 30, shards: 2}\noptim: {lr: 0.1}\n' >c.yaml
trireme train c.yaml --out run 2>&1 | grep accuracy | tail -1
grep class_names run/dataset.yaml
trireme eval run data.path=some.csv | grep accuracy
trireme eval run -n 2 data.path=some.csv | grep accuracy
printf '0,0,3\n0,3,0\n' | trireme predict run --format csv --top 1 | sed -E 's/0\.9[0-9]*/P/g'
trireme eval run data.path=other.csv
trireme eval run data.path=numbers.csv
echo "continuing with data that lack a class"
trireme train c.yaml --resume run --out more -n 2 data.path=some.csv checkpoint.other_data=continue train.epochs=200 2>&1 | grep accuracy | tail -1
grep class_names more/dataset.yaml
trireme train c.yaml --resume run --out none data.path=other.csv train.epochs=60 2>&1 | tail -1

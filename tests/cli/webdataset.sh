# tar files of images: inspected, trained, named where they are wrong; other data are noticed
G="$EXAMPLES/../tests/golden"
mkdir shards && cp "$G"/images-*.tar shards
trireme data inspect 'shards/images-{0..1}.tar' | sed 's/ [0-9]\.[0-9][0-9.]*/ V/g'
printf 'model: {name: mlp, hidden: [16]}\ndata: {path: shards, test: 0.2, shuffle_block: 2, shuffle_buffer: 8}\ntrain: {batch: 4, epochs: 4, shards: 4}\noptim: {lr: 0.01}\n' >c.yaml
trireme train c.yaml --out one train.steps=3 2>&1 | grep -o 'data: .*'
trireme ledger one | tail -1
trireme eval one --train data.path=shards/images-1.tar data.test=0 2>&1 | grep -c accuracy
trireme train c.yaml --out refused data.mixup=1 2>&1 | tail -2
trireme train c.yaml --out mixed data.mixup=1 train.shards=2 2>&1 | grep -c weights:
echo "other data are noticed"
trireme train c.yaml --resume one --out none train.steps=0 data.path='shards/images-[0].tar' data.test=0 2>&1 | grep -o 'made on other training data'
echo "wrong files are named"
head -c 12000 "$G/images-0.tar" >shards/images-0.tar
trireme train c.yaml --out none
gzip -c "$G/images-0.tar" >x.tar.gz
trireme train c.yaml --out none data.path=x.tar.gz
trireme train c.yaml --out none 'data.path=shards/images-{0..2}.tar'
cp "$G/images-0.tar" y.tar
trireme train c.yaml --out none data.path=y.tar data.target=kind

# a folder of images, one sub-folder per class: the same weights for 1, 2 and 3 workers, any threads, and after a resume
F="$EXAMPLES/../tests/unit/data/images"
mkdir -p pets/ant pets/bee
for name in rgb.png gray.jpg cmyk.jpg alpha.webp photo.png turned8.jpg turned2.jpg palette.png; do cp "$F/$name" pets/ant; done
for name in tall.png turned6.jpg bits.png rgb.jpg rgb.webp progressive.jpeg turned5.jpg gray16.png; do cp "$F/$name" pets/bee; done
printf 'model: {name: mlp, hidden: [16]}\ndata: {path: pets, image_size: 8, random_crop: 0.2, flip: true, contrast: 0.3, erase: 0.2, normalize: standard}\ntrain: {batch: 4, epochs: 6, shards: 4}\noptim: {lr: 0.01}\n' >c.yaml
hash() { grep -o 'xxh3 [0-9a-f]*' | tail -1; }
one=$(trireme train c.yaml --out one 2>&1 | hash)
for n in 2 3; do [ "$(trireme train c.yaml --out "w$n" -n $n data.threads=$n data.cache_mib=$((n - 2)) 2>&1 | hash)" = "$one" ] && echo "$n workers: the same weights"; done
trireme train c.yaml --out part train.epochs=6 train.steps=7 >part.log 2>&1
[ "$(trireme train c.yaml --resume part --out rest -n 2 2>&1 | hash)" = "$one" ] && echo "resumed: the same weights"
grep -E '^(sample|classes|class_names|decoders)' one/dataset.yaml | sed 's/ [0-9]\.[0-9.]*/ V/g'
echo "other data are noticed"
mv pets/bee/rgb.jpg pets/ant
trireme train c.yaml --resume part --out none 2>&1 | tail -2
echo "a broken file, an unknown size"
head -c 300 "$F/photo.png" >pets/bee/cut.png
trireme train c.yaml --out none
trireme train c.yaml --out skipped data.broken=skip 2>&1 | grep -c '^weights'
rm pets/bee/cut.png
trireme train c.yaml --out none data.image_size=
echo "files and folders are asked"
trireme predict one pets/ant/rgb.png pets/bee c.yaml --top 0 | sed -E 's/("class"|"probability"):[0-9.e-]+/\1:N/g; s/"(ant|bee)"/"CLASS"/'
echo "inspected"
trireme data inspect pets | sed 's/ [0-9]\.[0-9][0-9.]*/ V/g'
head -c 300 "$F/photo.png" >pets/bee/cut.png
echo text >pets/bee/notes.txt
trireme data inspect pets data.image_size=8 data.test=0 --json | sed 's/"mean".*//'
trireme data inspect pets data.image_size=8 data.broken=skip data.normalize=none --threads 3 | tail -2
trireme data inspect pets image_size=8
trireme data inspect

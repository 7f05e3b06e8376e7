# ranks meet at saves: one that would save at other steps is refused before the first
printf 'model: {name: mlp, hidden: [8]}\ndata: {name: synthetic, synthetic_count: 64}\ntrain: {batch: 16, epochs: 1, threads: 1}\n' >c.yaml
trireme launch -n 2 -- sh -c 'trireme train c.yaml checkpoint.every_steps=$((RANK + 1)) --out one' >log 2>&1
echo "exit code $?"
grep -o 'rank 1 has another .* than rank 0' log | head -1

# what parameter servers cannot do, and what they can do only in part
printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, steps: 2}\n' >c.yaml
for word in parallel.tensor=2 parallel.pipeline=auto; do
    trireme train c.yaml -n 2 --servers 1 $word 2>&1 | grep '^error'
done
trireme train c.yaml -n 2 --servers 1 ps.replicas=2 2>&1 | sed -n 's/.*warn  *\[/[/p'
trireme train c.yaml -n 2 parallel.pipeline=2 'parallel.cut_at=[nix]' 2>&1 | grep '^error' | sort -u
trireme train c.yaml -n 2 parallel.pipeline=2 parallel.schedule=interleaved 2>&1 | grep '^error' | sort -u

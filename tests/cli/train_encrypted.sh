printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 1}\n' >c.yaml
trireme train c.yaml -n 2 --out plain comm.transport=tcp 2>plain.log | grep weights >plain.txt
trireme train c.yaml -n 2 --out hidden comm.transport=tcp comm.encrypt=on comm.tcp_connections=3 2>hidden.log | grep weights >hidden.txt
grep -c weights plain.txt
cmp plain.txt hidden.txt && echo the same weights
grep -c encrypted plain.log
grep -o '3 connections, 127.0.0.1 to 127.0.0.1\|encrypted' hidden.log | sort -u

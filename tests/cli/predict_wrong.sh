printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640, synthetic_width: 4, classes: 3}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml --out run >/dev/null 2>&1
cat >rows.json <<'ROWS'
{"index": 1}
no
{"index": 80}
{"index": -1}
{"index": 1.5}
{"input": [1, 2]}
{"input": [1, 2, "3", 4]}
{"input": [1, 2, 3, 1e300]}
{"input": [1, 2, 3, 4], "index": 1}
{"inputs": [1, 2, 3, 4]}
[1, 2, 3, 4]
{"index": 1}
ROWS
trireme predict run rows.json --top 0 | sed -E 's/([0-9]\.[0-9]{4})[0-9]*/\1/g'
trireme predict run rows.json >/dev/null 2>&1
echo "exit $?"
printf '1,2,3\n1,2,3,\n1,,2,3\n1;2;3;4\n' | trireme predict run --format csv
echo "exit $?"
trireme predict run nothing.json
echo "exit $?"
trireme predict run rows.json --format xml
echo "exit $?"
trireme predict run --batch 0
echo "exit $?"
trireme predict run --format npy
echo "exit $?"
printf 'model: {name: mlp, hidden: [16]}\n' >broken.npy
trireme predict run broken.npy
echo "exit $?"
trireme predict run rows.json --tpo 3

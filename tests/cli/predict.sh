printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640, synthetic_width: 4, classes: 3}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml --out run >/dev/null 2>&1
# probabilities to 4 digits
short() { sed -E 's/([0-9]\.[0-9]{4})[0-9]*(e-[0-9]+)?/\1\2/g'; }
printf '{"index": 3}\n\n{"input": [[1, 2], [3, 4]]}\n{"input": [1, 2, 3, 4]}\n{"index": 0}\n{"index": 3}' >rows.json
trireme predict run rows.json --top 2 | short
echo "batches make no difference"
trireme predict run rows.json --top 2 >whole
trireme predict run --batch 1 --top 2 <rows.json | cmp - whole
trireme predict run - --batch 3 --top 2 <rows.json | cmp - whole
echo "csv and npy"
printf '1,2,3,4\r\n-1, 0.5,1e-1,4' >rows.csv
trireme predict run rows.csv --top 0 | short
trireme predict run --format csv --top 0 <rows.csv | short
printf '\na,"b, or so",c,d\n"1", "2",3,4\n' | trireme predict run --format csv --top 0 | short
{
    printf '\223NUMPY\001\000v\000'
    printf "%-117s\n" "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 2, 2), }"
    printf '\001\000\000\000\002\000\000\000\003\000\000\000\004\000\000\000\377\377\377\377\000\000\000\000\000\000\000\000\004\000\000\000'
} >rows.npy
trireme predict run rows.npy --top 0 | short
echo "real targets"
trireme train c.yaml --out real data.classes=-1 optim.lr=0.01 >/dev/null 2>&1
trireme predict real rows.csv | sed 's/[0-9.e-]*\]/N]/'
echo "without the data: the run's folder says what samples are"
sed -i 's/synthetic_width: 4/synthetic_width: 9/' run/config.yaml
trireme predict run rows.csv --top 0 | short
echo '{"index": 1}' | trireme predict run

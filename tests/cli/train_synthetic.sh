printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 2}\n' >c.yaml
trireme train c.yaml -n 2 --out run 2>/dev/null
ls run run/checkpoints/*
# targets that are real have no accuracy
i=0; while [ $i -lt 40 ]; do echo "$i,$((i * 7 % 11)),$((i % 5)).5"; i=$((i + 1)); done >real.csv
trireme train c.yaml data.name= data.path=real.csv data.classes=-1 data.test=0.2 train.batch=8 train.epochs=1 optim.lr=1e-6 2>&1 | grep -e '^epoch' -e validation

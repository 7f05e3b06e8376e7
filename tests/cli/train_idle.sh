# options without effect are warned about, with the condition that is not met; those of the file and those that apply are not
printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, steps: 2}\nps: {staleness: 4}\noptim: {beta1: 0.8}\n' >c.yaml
told() { trireme train c.yaml "$@" 2>&1 | sed -n 's/.*warn  *\[[a-z]* \([0-9]\)\] /\1: /p' | grep "no effect"; echo; }
told ps.consistency=ssp ps.staleness=1 optim.momentum=0.5
told optim.beta2=0.9 optim.l1=1 train.spike_factor=4 monitor.notes=x
told optim.name=adam optim.beta2=0.9 optim.schedule=cosine optim.min_lr=0.01 train.on_spike=skip train.spike_factor=4
told -n 2 --servers 1 ps.consistency=ssp ps.staleness=1 ps.backup_workers=0 parallel.cut_at='[fc2]'
told -n 2 parallel.compress=int8 parallel.compress_block=128 parallel.compress_rank=2 parallel.outer_lr=1
told data.context=3 data.target=1 data.synthetic_count=640 data.test=0.2
printf '1,2,0\n3,4,1\n5,6,0\n7,8,1\n' >d.csv
told data.name= data.path=d.csv data.target=2 data.synthetic_width=3 data.test=0.5 train.batch=2 train.shards=2

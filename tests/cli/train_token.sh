# Two ranks that nobody gave a token: a warning of rank 0, or a refusal where encryption or a token is asked for.
printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic, synthetic_count: 640}\ntrain: {batch: 64, epochs: 1}\n' >c.yaml
both() {
    run=$1
    shift
    mkdir $run.store
    for rank in 1 0; do
        RANK=$rank WORLD_SIZE=2 TRIREME_STORE=file://$PWD/$run.store trireme train c.yaml --out $run "$@" >$run.$rank 2>&1 &
    done
    wait
    echo "$run: $(cat $run.? | grep -c 'TRIREME_TOKEN is not set (started by torchrun)') warnings, $(grep -c weights: $run.0) results"
    grep -h -e ^error -e ^hint $run.? | sort -u
}
both plain comm.transport=tcp
grep -c -e 'TRIREME_TOKEN is not set' plain.1
both hidden comm.encrypt=on
both strict comm.require_token=on
TRIREME_TOKEN=short both weak
TRIREME_TOKEN=a-secret-of-16-or-more
export TRIREME_TOKEN
both safe comm.transport=tcp comm.encrypt=on comm.require_token=on
grep -h weights: plain.0 safe.0 | uniq | wc -l
both fabric comm.transport=ucx comm.encrypt=on

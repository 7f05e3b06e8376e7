run() {
    trireme sim all_reduce --ranks 6 --sizes 64k --jitter 20 --loss 0.01 --stragglers 2 --seed $1
}
run 3 > first
run 3 > again
run 4 > other
cmp first again && echo the same
cmp -s first other || echo another
grep -c ' 0$' other

trireme bench barrier comm.encrypt=maybe
trireme bench barrier --json comm.encript=on
trireme bench barrier all_reduce
TRIREME_COMM='comm.order=any comm.nothing=1' trireme bench barrier
trireme bench barrier -n 2 comm.transport=inproc 2>&1 | grep -m 1 error
# words stand over the environment, flags over words
TRIREME_COMM='comm.transport=tcp comm.encrypt=on' trireme bench all_reduce -n 2 --sizes 1k --iterations 1 comm.algorithm=all_reduce:0-=tree 2>&1 | sed -n '1s/.*round trip.*, //p;3p' | awk '{ print $1, $5, $6, $NF }'
TRIREME_COMM=comm.transport=tcp trireme bench all_reduce -n 2 --sizes 1k --iterations 1 comm.transport=shm | awk 'NR > 1 { print $5 }'
trireme bench all_reduce -n 2 --sizes 1k --iterations 1 comm.transport=tcp --transport shm | awk 'NR > 1 { print $5 }'

trireme bench barrier comm.encrypt=maybe
trireme bench barrier --json comm.nothing=1
trireme bench barrier all_reduce

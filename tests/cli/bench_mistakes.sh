trireme bench all_reduce -n 2 --sizes 64k-1k
trireme bench all_reduce --dtype f32,f31
trireme bench all_reduce --memory gpu
trireme bench all_reduce --seconds 0
trireme bench all_reduce --seconds 1 --iterations 5
trireme bench all_reduce,brodcast -n 2
trireme bench all_reduce --sizes 1k,3
trireme bench all_reduce,start -n 2
trireme bench all_reduce --hosts file

trireme sim all_reduce --ranks 5,8 --sizes 4,10000
trireme sim all_reduce_tree --ranks 5 --sizes 1k --algorithm parts --json

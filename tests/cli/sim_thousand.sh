trireme sim all_reduce --ranks 1024 --sizes 1k --algorithm doubling
trireme sim all_reduce --ranks 1000 --sizes 1k --algorithm tree

trireme sim all_reduce --ranks 4096 --sizes 1G 2>&1 | sed 's/want at most [0-9.]*/want at most N/'
trireme sim
trireme sim all_redcue
trireme sim all_reduce --algorithm halvign
trireme sim all_reduce --ranks 5000
trireme sim all_reduce --loss 0.9
trireme sim all_reduce sim.latncy_us=3
trireme sim all_reduce train.steps=3

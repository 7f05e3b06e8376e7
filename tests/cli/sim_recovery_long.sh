# More seeds and workers than sim_recovery.sh.
trireme sim recovery --ranks 5 --seeds 40 --twice
trireme sim recovery --ranks 64 --seeds 2
trireme sim recovery --ranks 8 --spares 2 --stragglers --first 1 --seeds 30 --twice
trireme sim recovery --layout all --ranks 6 --seeds 28 --twice
trireme sim recovery --kinds damage,full-disk --layout all --ranks 6 --seeds 28 --twice
trireme sim recovery --layout all --ranks 6 --faults 4 --flips 8 --seeds 42
# a worker that heard of 256 ends crashed
trireme sim recovery --kinds kill --ranks 150 --faults 90 --steps 40 --first 2 --seeds 1
# Hundreds that die while others register: rank 0 asked the store for each newcomer once for each of the dead, 12 s long.
trireme sim recovery --kinds kill --ranks 200 --faults 60 --first 1 --seeds 1

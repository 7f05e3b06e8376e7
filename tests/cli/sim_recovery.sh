# 25, 378: what was found once stays found (docs/design/027-simulated-recovery.md)
trireme sim recovery --ranks 2 --first 25 --seeds 1
trireme sim recovery --ranks 4 --first 378 --seeds 1
trireme sim recovery --ranks 5 --seeds 60 --twice
trireme sim recovery --ranks 64 --seeds 2
trireme sim recovery --ranks 8 --spares 2 --stragglers --seeds 40 --twice
trireme sim recovery --ranks 0
trireme sim recovery all_reduce

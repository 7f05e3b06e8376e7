# 154, 1256: what was found once stays found (docs/design/027-simulated-recovery.md)
trireme sim recovery --ranks 2 --first 154 --seeds 1
trireme sim recovery --ranks 4 --first 1256 --seeds 1
trireme sim recovery --ranks 5 --seeds 40 --twice
trireme sim recovery --ranks 64 --seeds 2
trireme sim recovery --ranks 8 --spares 2 --stragglers --seeds 30 --twice
# states that are spread; the seeds are those of docs/design/044-simulated-layouts.md
trireme sim recovery --layout all --ranks 6 --seeds 28 --twice
trireme sim recovery --layout stages --ranks 5 --seeds 1
trireme sim recovery --layout zero1 --ranks 5 --faults 8 --first 6 --seeds 1
trireme sim recovery --layout zero1 --ranks 5 --faults 8 --first 3 --seeds 1
trireme sim recovery --layout tensor --ranks 6 --faults 6 --first 87 --seeds 1
trireme sim recovery --ranks 3 --steps 60 --seeds 2
trireme sim recovery --layout rings
trireme sim recovery --ranks 0
trireme sim recovery all_reduce

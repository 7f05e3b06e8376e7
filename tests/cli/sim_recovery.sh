# Regressions keep the faults of their day: with others their draws come at other moments.
OLD=kill,request,stop,cut,leave,join
# 2172, 3727: found something once (docs/design/recovery.md); since generations without links are given up
# earlier their faults come at other moments
trireme sim recovery --kinds $OLD --ranks 2 --first 2172 --seeds 1
trireme sim recovery --kinds $OLD --ranks 4 --first 3727 --seeds 1
trireme sim recovery --ranks 5 --seeds 12 --twice
trireme sim recovery --ranks 8 --spares 2 --stragglers --first 1 --seeds 10 --twice
# states that are spread (docs/design/recovery.md)
trireme sim recovery --layout all --ranks 6 --seeds 7 --twice
trireme sim recovery --layout stages --ranks 5 --seeds 1
# links that are late or lose packets, slow processors, wrong clocks, damaged frames, full disks (docs/design/recovery.md)
trireme sim recovery --kinds delay,loss,slow,clock --layout all --ranks 6 --seeds 14
trireme sim recovery --kinds damage,full-disk --layout all --ranks 6 --seeds 7 --twice
# 503: a damaged frame, and a peer that was not told that its link is lost; 19: a part of a checkpoint whose writer was
# killed, 2386: the same of the last one; 1166: a ledger that cannot be begun; 10854: a folder cleared by a sleeper
NEW=$OLD,delay,loss,slow,clock,damage
trireme sim recovery --kinds $NEW --layout all --ranks 6 --first 503 --seeds 1
trireme sim recovery --kinds kill,damage,full-disk --layout all --ranks 6 --first 19 --seeds 1
trireme sim recovery --kinds $NEW,full-disk --layout all --ranks 6 --first 2386 --seeds 1
trireme sim recovery --kinds $NEW,full-disk --layout all --ranks 6 --first 1166 --seeds 1
trireme sim recovery --kinds $NEW,full-disk --layout all --ranks 14 --faults 16 --first 10854 --seeds 1
# 3067: one that had not been told that a generation has formed, and asked, was taken to have what it had before (044)
trireme sim recovery --kinds $OLD --layout all --ranks 3 --spares 2 --first 3067 --seeds 1
# who was ready makes a step only if one is seen that has (docs/design/recovery.md)
trireme sim recovery --kinds $OLD --layout all --ranks 14 --faults 14 --first 10525 --seeds 1
trireme sim recovery --kinds $OLD --layout all --ranks 14 --faults 14 --first 11099 --seeds 1
# and what guards have judged of a step that is redone is judged anew
trireme sim recovery --kinds $OLD --layout all --ranks 6 --faults 8 --first 842 --seeds 1
# bits that flip in parts of a state and in their mirrors (docs/design/recovery.md);
# 510: a loss that is no number; 2518: one rank alone sees a loss that jumps
trireme sim recovery --layout all --ranks 6 --faults 4 --flips 8 --seeds 14
trireme sim recovery --kinds $OLD --layout all --ranks 2 --faults 0 --flips 6 --first 510 --seeds 1
trireme sim recovery --kinds $OLD --layout all --ranks 2 --faults 0 --flips 6 --first 2518 --seeds 1
trireme sim recovery --ranks 3 --steps 60 --seeds 2
trireme sim recovery --layout rings
trireme sim recovery --kinds kill,flood
trireme sim recovery --ranks 0
trireme sim recovery all_reduce

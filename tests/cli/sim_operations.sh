for op in reduce broadcast all_gather reduce_scatter barrier send_recv; do
    trireme sim $op --ranks 7 --sizes 10000
done

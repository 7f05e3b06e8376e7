for place in --in-place --out-of-place; do
    trireme bench all_gather,scatter_v,reduce -n 2 --sizes 64k $place --rewrite --iterations 2 | awk 'NR > 1 { print $1, $3, $NF }'
done
trireme bench all_to_all -n 2 --in-place

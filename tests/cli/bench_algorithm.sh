trireme bench all_reduce -n 2 --sizes 1k-16k:x4 --iterations 2 --algorithm all_reduce:0-4k=tree,4k-=halving | awk 'NR > 1 { print $3, $6, $NF }'
trireme bench all_reduce -n 2 --sizes 1k --iterations 1 --algorithm all_reduce:=ring 2>&1 | head -1
trireme bench all_reduce -n 2 --sizes 1k --iterations 1 --order any --algorithm all_reduce:0-=ring | awk 'NR > 1 { print $6, $NF }'
trireme bench all_reduce -n 2 --order random

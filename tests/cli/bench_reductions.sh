trireme bench all_reduce,reduce_scatter_v,broadcast -n 3 --sizes 100,20k --dtype bf16,u8 --reduce sum,average,min,premul_sum --iterations 2 --memory ordinary --transport tcp 2>/dev/null |
    awk '{ print $1, $2, $3, $4, $NF }'

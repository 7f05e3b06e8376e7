trireme bench all_reuce -n 2

trireme train -n 2

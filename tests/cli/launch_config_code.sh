trireme launch -n 2 -- sh -c 'if [ $RANK = 1 ]; then sleep 0.2; exit 3; else exec 2>/dev/null; trap "exit 2" TERM; while :; do sleep 0.05; done; fi'

trireme launch -n 2 -- sh -c 'if [ $RANK = 1 ]; then exit 7; else sleep 10; fi'

trireme launch -n 3 -- sh -c 'echo "rank $TRIREME_RANK of $TRIREME_WORLD_SIZE"' >out
code=$?
sort out
exit $code

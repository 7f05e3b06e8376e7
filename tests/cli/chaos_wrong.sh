trireme chaos
echo "exit $?"
trireme chaos nowhere
echo "exit $?"
trireme chaos . --faults kill,cat
echo "exit $?"
trireme chaos . --for soon
echo "exit $?"
trireme chaos . --every 0
echo "exit $?"
trireme chaos . --seed -1
echo "exit $?"
echo '1 stop 0' >faults
trireme chaos . --schedule faults
echo "exit $?"
trireme chaos . --schedule faults --seed 2
echo "exit $?"
echo '1 kill' >faults
trireme chaos . --schedule faults
echo "exit $?"
trireme chaos --dry-run --seed 7 --for 6 --every 1.5 --faults kill,stop,full-disk,corrupt

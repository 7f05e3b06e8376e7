trireme ledger
echo "exit $?"
trireme ledger nowhere
echo "exit $?"
trireme ledger .
echo "exit $?"
echo rubbish >ledger
trireme ledger .
echo "exit $?"
trireme ledger --help

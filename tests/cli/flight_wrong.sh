trireme flight
echo "exit $?"
trireme flight missing.json
echo "exit $?"
echo '{"trireme_flight":1,"job":"0000abcd","rank":7,"world":4}' >bad.json
trireme flight bad.json
echo "exit $?"
echo 'rubbish' >bad.json
trireme flight bad.json
echo "exit $?"
trireme flight --last 0 bad.json

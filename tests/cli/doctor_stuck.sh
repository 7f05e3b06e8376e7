# A host that answers, and then is silent, is a finding and no hang.
mkdir bin
cat >bin/ssh <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done # options
case $1,$2 in
127.0.0.9,*--version*) echo "trireme 0.1.0"; exit;;
127.0.0.9,*) exec sleep 1000;;
esac
exec sh -c "$2"
END
chmod +x bin/ssh
printf 'localhost slots=2\n127.0.0.9\n' >hosts
PATH=$PWD/bin:$PATH trireme doctor --hosts hosts --wait 8 >out
code=$?
grep '^fail' out
exit $code

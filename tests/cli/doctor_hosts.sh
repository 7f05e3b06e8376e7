# Hosts that do not answer are findings; the others are looked at. This ssh runs its command here.
mkdir bin
cat >bin/ssh <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done # options
case $1 in
127.0.0.7) echo "127.0.0.7: Permission denied (publickey)." >&2; exit 255;;
127.0.0.8) echo "ssh: connect to host 127.0.0.8 port 22: Connection refused" >&2; exit 255;;
127.0.0.9) echo "trireme 0.0.1"; exit;;
esac
exec sh -c "$2"
END
chmod +x bin/ssh
printf 'localhost slots=2\n127.0.0.7\n127.0.0.8\n127.0.0.9\n' >hosts
PATH=$PWD/bin:$PATH trireme doctor --hosts hosts >out 2>&1
code=$?
self=$(readlink -f "$(command -v trireme)")
awk '/^[a-z]+ +(host|ranks|links) /{print; fix = 1; next} /^verdict/ || (fix && /fix:/) {print} {fix = 0}' out |
    sed "s|${self%/*}|PLACE|g; s/^\(verdict.*\) (.*/\1/"
exit $code

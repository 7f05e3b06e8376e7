# hosts that close connections, as sshd does with more logins than its MaxStartups: they are made again
cat >ssh <<'END'
#!/bin/sh
for command; do host=$last last=$command; done
mkdir "seen-$host" 2>/dev/null || exec sh -c "$command"
echo "kex_exchange_identification: Connection closed by remote host" >&2
echo "Connection closed by $host port 22" >&2
exit 255
END
chmod +x ssh
printf '10.255.0.1\n10.255.0.2\n' >hosts
PATH=$PWD:$PATH trireme launch -n 2 --hosts hosts -- echo over there >out 2>&1
code=$?
sort out
exit $code

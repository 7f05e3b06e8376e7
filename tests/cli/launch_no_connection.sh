# a remote shell that says nothing: which host it was, and this run's own exit code
printf '#!/bin/sh\nexit 255\n' >ssh
chmod +x ssh
printf '10.255.0.1\n10.255.0.2\n' >hosts
PATH=$PWD:$PATH trireme launch -n 2 --hosts hosts -- true 2>out
code=$?
sed 's/rank [01]/rank N/; s/10\.255\.0\.[12]/HOST/g; s/; stopping the others//' out | sort -u
exit $code

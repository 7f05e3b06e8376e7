# Too few open files for the ranks to meet: found before and while they try.
(ulimit -Sn 8; exec trireme doctor -n 2) >out 2>err
code=$?
grep -A 1 'open files  ' out
grep '^fail' out | cut -c 1-26
grep '^verdict' out | sed 's/ (.*//'
exit $code

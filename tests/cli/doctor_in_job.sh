# Started as ranks by somebody else, it looks at that job; rank 0 speaks.
trireme launch -n 3 -- trireme doctor >out
code=$?
grep -E '^.0. [a-z]+  +(ranks|links) ' out
grep -c '^.[12]' out
exit $code

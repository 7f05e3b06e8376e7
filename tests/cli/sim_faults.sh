trireme sim all_reduce --ranks 8 --sizes 64k --algorithm halving --faults 1:10000:cut
echo exit $?
trireme sim broadcast --ranks 4 --sizes 64k --algorithm tree --faulty-rank 3 --faults '*:10000:flip' --seed 9

head() {
    printf '{"trireme_flight":1,"job":"0000abcd","rank":%s,"world":4,"host":"h%s","written_ns":%s,"status":"TRI_ETIMEOUT","origin":0,"cause":"rank 0 waited 10.000 s: from rank 1: 0 of 64 bytes","calls":%s,"kept":%s}\n' "$1" "$1" "$2" "$3" "$3"
}
call() { # number sequence op count begin_us end_us status
    printf '{"number":%s,"group":1,"sequence":%s,"op":"%s","dtype":"f32","count":%s,"reduce":0,"name":"bucket %s","hash":"00000000000000a%s","members":"000000000000000f","begin_ns":%s000,"end_ns":%s,"status":"%s"}\n' "$1" "$2" "$3" "$4" "$2" "$2" "$5" "$6" "$7"
}
(head 0 9000 2; call 1 1 all_reduce 10 100 200000 TRI_OK; call 2 2 all_reduce 10 300 900000 TRI_ETIMEOUT) >r0
(head 1 9001 1; call 1 1 all_reduce 10 150 200000 TRI_OK) >r1
(head 3 9002 2; call 1 1 all_reduce 10 100 200000 TRI_OK; call 2 2 all_reduce 10 350 0 "") >r3
trireme flight r3 r0 r1
echo "exit $?"
trireme flight --json r0 r1 r3
(head 1 9001 2; call 1 1 all_reduce 10 150 200000 TRI_OK; call 2 2 broadcast 10 320 0 "") >r1
trireme flight --last 1 r0 r1 r3
(head 1 9001 2; call 1 1 all_reduce 10 150 200000 TRI_OK; call 2 2 all_reduce 10 320 0 "") >r1
trireme flight --last 1 r0 r1 r3

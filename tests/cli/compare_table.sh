cat > rows.json <<'END'
{"rows": [
{"peer": "trireme", "setting": "group", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 0.5, "p99_us": 1},
{"peer": "trireme", "setting": "group", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 1, "time_us": 0.4, "p99_us": 1},
{"peer": "trireme", "setting": "group", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 2, "time_us": 9.5, "p99_us": 1},
{"peer": "trireme", "setting": "ordinary", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 0.8, "p99_us": 1},
{"peer": "openmpi", "setting": "as installed", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 2.5, "p99_us": 3},
{"peer": "openmpi", "setting": "huge", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 1.0, "p99_us": 3},
{"peer": "gloo", "setting": "as installed", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 200, "p99_us": 300},
{"peer": "limit", "setting": "shared", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 0.25, "p99_us": 1},
{"peer": "limit", "setting": "staged", "op": "all_reduce", "ranks": 2, "bytes": 1024, "round": 0, "time_us": 0.4, "p99_us": 1},
{"peer": "trireme", "setting": "group", "op": "all_reduce", "ranks": 2, "bytes": 1048576, "round": 0, "time_us": 50, "p99_us": 60},
{"peer": "openmpi", "setting": "huge", "op": "all_reduce", "ranks": 2, "bytes": 1048576, "round": 0, "time_us": 75, "p99_us": 80}],
"meet_ns": [70, 80, 90], "busy": [0.0, 0.02, 0.5], "machine": "2 cores", "seconds": 0.1}
END
compare="$EXAMPLES/../bench/compare"
"$compare" --from rows.json --plot plot.svg
grep -c polyline plot.svg
"$compare" . --ops all_reduce,brodcast
"$compare" . --sizes 4,1q
"$compare"
"$compare" --from rows.json rows.json | grep rounds

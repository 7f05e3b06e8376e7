trireme bench all_reduce,all_to_all_v,barrier -n 2 --sizes 1k,32k --dtype f32,i8 --iterations 3 --json > lines
sed -E 's/("(time_us|p99_us|algbw_gbs|busbw_gbs)":)[0-9.e+-]+/\1N/g; s/("algorithm":)"[a-z_]+"/\1"NAME"/' lines

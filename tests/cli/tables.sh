# a table with numbers, texts, dates, missing values and a decimal comma; other tables are read by the names of its columns
awk 'BEGIN { split("Oslo|Paris|Rome, IT", city, "|"); print "id;age;city;joined;price"
    for (i = 0; i < 120; i++) { a = 20 + i * 7 % 50; c = i % 3 + 1
        printf "n%d;%s;%s;20%02d-%02d-01;%d,5\n", i, i % 17 ? a : "", city[c], 10 + i % 10, i % 12 + 1, 1000 * a + 20000 * c } }' >homes.csv
printf 'model: {name: mlp, hidden: [16]}\ndata: {path: homes.csv, target: price, ignore: id, validation: 0.1}\ntrain: {batch: 12, shards: 4, epochs: 40, threads: 1}\noptim: {name: adam, lr: 0.02}\n' >c.yaml
says() { "$@" 2>&1 | sed 's/^[0-9:.]* //' | grep -e 'data:' -e error -e warn; }
says trireme data inspect homes.csv data.target=price data.ignore=id
trireme data inspect homes.csv data.target=price data.ignore=id data.missing=mean data.validation=0.1
says trireme train c.yaml --out run data.missing=mean
echo "the rows are learned"
trireme eval run | grep r2 | sed 's/0\.9[0-9]*/0.9/'
echo "by names in any order, by values of JSON, without the target; what is missing or unknown is named"
printf 'city,age,joined\nOslo,30,2015-03-01\n' | trireme predict run --format csv >named
printf 'age\tcity\tjoined\tprice\n30\tOslo\t01.03.2015\t?\n' | trireme predict run --format csv | cmp - named
echo '{"input": {"age": 30, "joined": "2015-03-01", "city": "Oslo"}}' | trireme predict run | cmp - named
echo '{"input": [30, "Oslo", "2015-03-01"]}' | trireme predict run | cmp - named
printf '30,Oslo,2015-03-01\n' | trireme predict run --format csv | cmp - named
printf 'age,town,joined\n30,Oslo,2015-03-01\n' | trireme predict run --format csv
echo '{"input": {"age": 30, "city": "Oslo"}}' | trireme predict run
printf 'age,city,joined\nold,Oslo,2015-03-01\n' | trireme predict run --format csv
sed 's/price/prize/' homes.csv >other.csv
trireme eval run data.path=other.csv
echo "a class without a sample in a part"
awk 'BEGIN { print "x,kind"; for (i = 0; i < 40; i++) print i "," (i < 39 ? i % 2 ? "a" : "b" : "c") }' >few.csv
says trireme train c.yaml --out few data.path=few.csv data.target=kind data.ignore= train.epochs=1
echo "targets that are no classes"
trireme train c.yaml --out none data.path=few.csv data.target=kind data.classes=-1 data.ignore= 2>&1 | tail -2

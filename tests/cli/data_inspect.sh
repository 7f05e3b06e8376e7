# what training would make of files that are no images
awk 'BEGIN { for (i = 0; i < 40; i++) printf "%d,%d,%s\n", i, i % 3, i % 4 ? "yes" : "no, thanks" }' | sed 's/no, thanks/"no, thanks"/' >t.csv
trireme data inspect t.csv data.test=0.25
trireme data inspect t.csv data.target=0 data.classes=-1 --json
printf 'some text of 40 characters, more or less' >t.txt
trireme data inspect t.txt data.context=4
trireme data inspect none

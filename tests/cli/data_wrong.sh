printf 'ab\377' >a.txt
trireme data
trireme data cook a.txt
trireme data prepare --tokenizer byte --out t
trireme data prepare a.txt --out t
trireme data prepare a.txt --tokenizer byte
trireme data prepare a.txt --tokenizer byte --out t --validation 1
trireme data prepare a.txt --tokenizer none --out t
trireme data prepare a.txt --tokenizer char --out t
trireme data prepare a.txt --tokenizer byte --out t --validation 0 >/dev/null && trireme data prepare a.txt --tokenizer byte --out t
trireme data prepare a.txt --tokenizer byte --ouch t

printf 'model: {name: mlp, hidden: [16]}\ndata: {name: synthetic}\n' >c.yaml
python3 -c 'import socket,time; s=socket.socket(); s.bind(("127.0.0.1",0)); s.listen(); print(s.getsockname()[1],flush=True); time.sleep(20)' >port &
holder=$!
while [ ! -s port ]; do sleep 0.05; done
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(cat port) trireme train c.yaml >out 2>&1
code=$?
kill $holder
sed 's/[0-9][0-9][0-9][0-9][0-9]*/PORT/g' out
exit $code

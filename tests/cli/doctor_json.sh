# Each line is an object with the same keys; all checks, and those between ranks.
trireme doctor -n 2 --json >out
python3 -c '
import json
rows = [json.loads(line) for line in open("out")]
assert all(list(row) == ["check", "result", "found", "wanted", "fix", "host"] for row in rows)
assert all(row["result"] in ("ok", "note", "warn", "fail") and row["found"] and row["wanted"] for row in rows)
print(*[row["check"] for row in rows], sep=", ")
print(*[row["found"] for row in rows if row["check"] in ("shared memory", "ranks", "links")], sep="\n")'

# On a terminal: a bar for what takes long, unless --quiet; never bytes.
cat >on_terminal.py <<PY
import os, pty, subprocess, sys
# Runs a command with its standard error, and as asked input and output, on a terminal; prints what came.
streams, command = sys.argv[1], sys.argv[2:]
master, slave = pty.openpty()
child = subprocess.Popen(command, stdin=slave if "0" in streams else subprocess.DEVNULL,
                         stdout=slave if "1" in streams else subprocess.DEVNULL, stderr=slave)
os.close(slave)
shown = b""
while True:
    try:
        piece = os.read(master, 4096)
    except OSError:
        break
    if not piece:
        break
    shown += piece
status = child.wait()
for line in shown.replace(b"\r\n", b"\n").replace(b"\r\x1b[K", b"\n").decode().splitlines():
    if line and not line.startswith(("packing [", "unpacking [")):
        print(line)
print("bar" if b" [#" in shown or b" [." in shown else "no bar", status)
PY
python3 -c '
import sys
line = b"".join(i.to_bytes(3, "little") * (i % 7) for i in range(40000))
sys.stdout.buffer.write((line * 80)[: 4000 * 6000])' >values.bin
pack=("$TUCKFOLD" pack values.bin --dtype u8 --shape 4000 --codec "data=zstd(level=12)" --threads 1)
python3 on_terminal.py 2 "${pack[@]}" -o values.tuck
python3 on_terminal.py 2 "${pack[@]}" -o values.tuck -f --quiet
"${pack[@]}" -o values.tuck -f >out.txt 2>err.txt
wc -c <err.txt
python3 on_terminal.py 12 "$TUCKFOLD" cat values.tuck
python3 on_terminal.py 12 "$TUCKFOLD" unpack values.tuck -o -
python3 on_terminal.py 12 "$TUCKFOLD" pack values.bin --dtype u8 --shape 4000 -o -
python3 on_terminal.py 12 "$TUCKFOLD" repair values.tuck -o -
python3 on_terminal.py 012 "$TUCKFOLD" info -
python3 on_terminal.py 012 "$TUCKFOLD" pack - -o out.tuck

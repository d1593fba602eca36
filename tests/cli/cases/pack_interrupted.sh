# Ctrl-C ends pack between two chunks: what is packed stays, and --resume goes on with it.
cat >stop.py <<PY
import os, signal, subprocess, sys, time
pack = subprocess.Popen(sys.argv[1:])
while pack.poll() is None and not (os.path.exists("out.tuck.partial") and os.path.getsize("out.tuck.partial") > 1000000):
    time.sleep(0.001)
pack.send_signal(signal.SIGINT)
print("ended by signal", -pack.wait())
PY
python3 -c '
import sys
line = b"".join(i.to_bytes(3, "little") * (i % 7) for i in range(40000))
sys.stdout.buffer.write((line * 80)[: 4000 * 6000])' >values.bin
pack=("$TUCKFOLD" pack values.bin --dtype u8 --shape 4000 --codec "data=zstd(level=12)" --threads 1)
python3 stop.py "${pack[@]}" -o out.tuck
ls
"${pack[@]}" -o out.tuck --resume
"$TUCKFOLD" cat out.tuck | cmp - values.bin
"${pack[@]}" -o whole.tuck --quiet
cmp out.tuck whole.tuck && echo "as if never stopped"

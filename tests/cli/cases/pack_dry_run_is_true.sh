# Memory as --dry-run has it, beside what packing takes: within a factor of 1.5.
if grep -q __asan_init "$TUCKFOLD"; then
  echo "a sanitizer takes memory of its own"
  exit 77
fi
cat >check.py <<PY
import json, os, subprocess, sys
tool, shape = sys.argv[1], sys.argv[2]
for threads in 1, 2:
    for codec in "raw", "dct_chop(keep=4)":
        pack = [tool, "pack", "values.bin", "--dtype", "f32", "--shape", shape, "--codec", codec, "--threads", str(threads)]
        told = json.loads(subprocess.check_output([*pack, "--dry-run", "--json"]))[0]
        child = subprocess.Popen([*pack, "-o", "out.tuck", "-qf"])
        status, usage = os.wait4(child.pid, 0)[1:]
        assert status == 0 and told["seconds_about"] > 0
        factor = told["memory_bytes_about"] / (usage.ru_maxrss * 1024)
        size = told["packed_bytes_about"] / os.path.getsize("out.tuck")
        good = 1 / 1.5 < factor < 1.5 and 0.9 < size < 1.1
        print(shape, codec, threads, "true" if good else f"memory x{factor:.2f}, size x{size:.2f}")
PY
python3 -c 'import sys; [sys.stdout.buffer.write(bytes(range(256)) * 65536) for _ in range(4)]' >values.bin
python3 check.py "$TUCKFOLD" 4x32x32
python3 check.py "$TUCKFOLD" 1x2048x2048

# Names with spaces, letters of any script, slashes and controls; long ones; three hundred.
cat >make.py <<PY
import io, struct, zipfile
def npz(path, names):
    header = b"{'descr': '<i4', 'fortran_order': False, 'shape': (5,)}".ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + bytes(20)
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name + ".npy", data)
npz("names.npz", ["with space", "größe/höhe", "深度"])
npz("up.npz", ["../up", "good"])
npz("root.npz", ["/root"])
npz("control.npz", ["a\x1b[2Jb"])
npz("long.npz", ["n" * 300])
npz("many.npz", [f"a{i}" for i in range(300)])
PY
python3 make.py
for name in names up root control long many; do "$TUCKFOLD" pack $name.npz -o $name.tuck; done
"$TUCKFOLD" info names.tuck
"$TUCKFOLD" unpack names.tuck -o names
find names | sort
"$TUCKFOLD" cat names.tuck --select 深度 | wc -c
for name in up root long; do "$TUCKFOLD" unpack $name.tuck -o $name || echo "status $?"; done
"$TUCKFOLD" unpack up.tuck --select ../up -o up.npy
"$TUCKFOLD" unpack long.tuck -o long.npy
"$TUCKFOLD" info control.tuck | tail -n 1
"$TUCKFOLD" unpack many.tuck -o many
ls many | wc -l
"$TUCKFOLD" info many.tuck | tail -n 1
"$TUCKFOLD" unpack many.tuck -o - || echo "status $?"

# The arrays of an input, whether or not they fit together; the error that asks for them names them.
cat >make.py <<PY
import struct, zipfile
def npy(descr, shape, values):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + values
with zipfile.ZipFile("data.npz", "w") as archive:
    archive.writestr("label.npy", npy("<i8", "(6,)", bytes(48)))
    archive.writestr("image.npy", npy("|u1", "(6, 3, 8, 8)", bytes(6 * 192)))
    archive.writestr("mean.npy", npy("<f8", "()", bytes(8)))
    archive.writestr("names.npy", npy("<U4", "(6,)", bytes(96)))
PY
python3 make.py
"$TUCKFOLD" inputs data.npz
"$TUCKFOLD" inputs data.npz --json
"$TUCKFOLD" pack data.npz -o all.tuck || echo "status $?"
"$TUCKFOLD" pack --select image,label data.npz -o some.tuck
mkdir folder && python3 -c "
import zipfile
archive = zipfile.ZipFile('data.npz')
for name in ('image.npy', 'label.npy'):
    archive.extract(name, 'folder')"
"$TUCKFOLD" inputs folder
"$TUCKFOLD" pack folder -o folder.tuck

size() { python3 -c '
import struct, sys
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
print(sys.argv[1], "%dx%d" % struct.unpack(">II", data[16:24]))
' "$1"; }
"$MAKE_NPY" image.npy "|u1" 40,3,32,32 wave
"$MAKE_NPY" label.npy "<i8" 40 ramp
python3 -m zipfile -c data.npz image.npy label.npy
"$TUCKFOLD" pack data.npz -o data.tuck --codec "dct_quant(rate=2)" --quiet
"$TUCKFOLD" view data.tuck && size sheet.png
"$TUCKFOLD" view data.tuck --against data.npz -o errors.png && size errors.png
"$TUCKFOLD" view data.npz --codec raw --codec "dct_quant(rate=1)" --samples 3,17,30 --columns 2 -o codecs.png && size codecs.png
"$TUCKFOLD" view data.npz --range 5:8 --channel 1 -o one.png --json && size one.png
"$TUCKFOLD" view data.tuck --against data.npz --count 2 -o page.html --json
python3 -c '
page = open("page.html").read()
assert page.count("<img ") == 6 and page.count("base64,iVBORw0KGgo") == 6
assert "http" not in page and "label 39" in page and "prefers-color-scheme" in page
'

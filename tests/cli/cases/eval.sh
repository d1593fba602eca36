"$MAKE_NPY" images.npy '<f4' 4,3,16,16
"$TUCKFOLD" eval images.npy --codec 'dct_chop(keep=4)' 'dct_chop(keep=2)' raw --png out.png --index 3
python3 -c '
import struct
data = open("out.png", "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n"
print("%dx%d" % struct.unpack(">II", data[16:24]))
'

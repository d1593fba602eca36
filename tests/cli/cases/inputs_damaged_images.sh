# Images and HDF5, whole, empty and cut. What their libraries say is theirs, and left out here.
cat >make.py <<PY
import base64, struct, zlib
from pathlib import Path

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

rows = b"".join(b"\0" + bytes(range(8)) for _ in range(8))
Path("a.png").write_bytes(
    b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", 8, 8, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
tags = [(256, 8), (257, 8), (258, 8), (259, 1), (262, 1), (273, 8), (277, 1), (278, 8), (279, 64)]
entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
Path("a.tiff").write_bytes(b"II*\0" + struct.pack("<I", 72) + bytes(range(64))
                           + struct.pack("<H", len(tags)) + entries + bytes(4))
packed = {
    "a.jpg": """
eNr7f+P/AwYBLzdPNwZGRgYGRiBk+H+bwZlBWkhEXERQWlxMXE5GWkHDSVtDVVUj0MrWwCkhNDUlPjQ2OqtiZmNW4YTi6NjWrW0T5i1evXZ1es
Oek7uWHZ+5YvWS/wcYuDkYgJCRUZDh/xEGEZDJKIAFKCouwMCMJs7EmvT/FkgbA4M9g5bnyf83AdPmKlI=""",
    "a.h5": """
eNrr9HBx4+WS4mLm4GCAgf9QABMygIo7CSte9fdwCWJiqGASQlYIA1xMDIwMDGw8DECKsWIzzDwPBqqBzJ8yNWAnAC1gVGFgYGJiZGSByjFBaX
Q+Mw8DowADyE0gwMHACnQlMxcH0AfMjAxQL8I9v4JhyIBXs7KcGUbBKBgFo2AUjAKyACMTMwsrGzsAXqYlLw==""",
}
for name, text in packed.items():
    Path(name).write_bytes(zlib.decompress(base64.b64decode(text)))
PY
python3 make.py
mkdir cut
for file in a.png a.jpg a.tiff a.h5; do
  status=0
  "$TUCKFOLD" pack $file -o $file.tuck || status=$?
  if [ $status = 4 ]; then
    echo "this build does not read all of PNG, JPEG, TIFF and HDF5"
    exit 77
  fi
  size=$(stat -c %s $file)
  for bytes in 0 5 $((size / 2)) $((size - 20)); do
    head -c $bytes $file >cut/$file
    "$TUCKFOLD" pack cut/$file -o out.tuck 2>err.txt || echo "$bytes of $size: $?" $(sed "s/\(image\|opened\): .*/\1/" err.txt)
  done
done
ls

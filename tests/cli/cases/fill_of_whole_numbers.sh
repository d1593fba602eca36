# Fill values of whole numbers are in no figure, though these are packed without loss.
python3 - <<'END'
import struct
def npy(name, values, kind, code):
    head = str({"descr": kind, "fortran_order": False, "shape": (len(values),)}).encode()
    head += b" " * (63 - (10 + len(head)) % 64) + b"\n"
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head)
        file.write(struct.pack(f"<{len(values)}{code}", *values))
for kind, code in ("<i2", "h"), ("<i4", "i"), ("<i8", "q"):
    npy(f"a{code}.npy", [1, 5, 3, -999], kind, code)
    npy(f"b{code}.npy", [1, 5, 4, -999], kind, code)
END
for code in h i q; do
  "$TUCKFOLD" diff b$code.npy a$code.npy --fill=-999 --json | grep -o '"psnr_db":[0-9.]*\|"range":[0-9.]*\|"fill_values":[0-9]*'
done
"$TUCKFOLD" diff ai.npy ah.npy --fill=-999 --fail-below 40 --quiet
"$TUCKFOLD" diff bh.npy ah.npy --fill=3 --fail-below 1 --quiet || echo "exit $?"
"$TUCKFOLD" diff aq.npy aq.npy --fill=9007199254740993

python3 -c "import sys; sys.stdout.buffer.write(bytes(range(256)) * 3)" >field.bin
"$TUCKFOLD" pack field.bin --format raw --dtype u8 --shape 16x16 -o field.tuck --codec raw
"$TUCKFOLD" cat field.tuck | cmp - field.bin && echo same

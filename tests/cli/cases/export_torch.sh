# A file of its own for each target of Python; what is printed says what it takes.
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 100,3,256,256 --target torch -o codec.py
grep -c ' = matmul' codec.py
! grep -q '^import tuckfold' codec.py
"$TUCKFOLD" export codec "dct_chop(keep=4, serialize=2)" --shape 100x3x512x512 --target samba -o rdu.py
"$TUCKFOLD" export codec "dct_chop(keep=3, shape=triangle)" --shape 100,3,64,64 --target poptorch -o ipu.py
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 8,64,64 --target cerebras -o cs2.py
"$TUCKFOLD" export codec "dct_chop(keep=4)" --shape 8,64,64 --target groq -o chip.py
"$TUCKFOLD" export codec "dct_chop(keep=3, shape=triangle)" --shape 100,3,64,64 --target torch -o t.py --json |
  python3 -c 'import json, sys; (one,) = json.load(sys.stdin); print(one["ratio_values"] == one["ratio"], one["ratio_eq3"])'
ls

# One line why, and exit status 1 where it does not fit.
HIDE='s|"device_file":"[^"]*/|"device_file":"|'  # where the tool lies
try() { "$TUCKFOLD" fits "$@" || echo "exit $?"; }
try "dct_chop(keep=4)" --shape 100,3,512,512 --device sn30
try "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device sn30
try "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device ipu-bow
try "dct_chop(keep=4)" --shape 1001,3,64,64 --device groqchip
try "dct_chop(keep=4)" --shape 4000,3,32,32 --device groqchip
try "dct_chop(keep=4)" --shape 100,3,64,64 --dtype bf16 --device cs2
try "dct_chop(keep=4) | block_quant(bits=8)" --shape 4,3,64,64 --device cs2
try "dct_chop(keep=4)" --shape 100,3,512,512 --device sn30 --json | sed "$HIDE"
try "dct_chop(keep=4) | block_quant(bits=8)" --shape 4,3,64,64 --device sn30 --json | sed "$HIDE"
try "dct_chop(keep=4)" --shape 100,3,64,64 --device sn3
try "dct_chop(keep=4)" --shape 100,3,64,64 --device groqhcip
try "dct_chop(keep=4)" --shape 100,3,64,64
try "bounded(abs=0.1)" --shape 100,3,64,64 --device sn30
try "dct_chop(keep=4)" --shape 3003,64,64 --device groqchip
try "dct_chop(keep=4)" --shape 1001,3,64,64 --dtype f16 --device groqchip
# Two or three causes have one remedy; where nothing near fits, that is said.
try "dct_chop(keep=4, shape=triangle)" --shape 100,3,512,512 --device sn30
try "dct_chop(keep=4)" --shape 100,3,512,512 --dtype f16 --device sn30
try "dct_chop(keep=4, order=planes)" --shape 4,3,64,64 --device sn30
try "dct_chop(keep=4)" --shape 4,536,536 --device sn30
# Small planes count by their values, and case is forgiven.
try "dct_chop(keep=4)" --shape 2600,3,63,64 --device groqchip
try "dct_chop(keep=4)" --shape 4,3,64,64 --device SN30
try "dct_chop(keep=4, serialize=3)" --shape 4,3,64,64 --device sn30
# A training step of a structured layer.
try butterfly --shape 50,1024 --device ipu-gc200
try dense --shape 50,8192 --device ipu-gc200
try "low_rank(rank=8)" --shape 50,784 --out-features 10 --device a30 --json | sed "$HIDE"
try butterfly --shape 1024 --device ipu-gc200
try butterfly --shape 50,1024 --only pack --device ipu-gc200
try butterfly --shape 50,1024 --device cpu
try "butterfly(tide=true)" --shape 50,1024 --device ipu-gc200

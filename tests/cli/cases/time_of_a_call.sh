# Predictions, their intervals, and what sources state beside them.
HIDE='s|"device_file":"[^"]*/|"device_file":"|'  # where the tool lies
try() { "$TUCKFOLD" time "$@" || echo "exit $?"; }
try "dct_chop(keep=4)" --shape 100,3,256,256 --device ipu-gc200
try "dct_chop(keep=7)" --shape 100,3,256,256 --device sn30 --only unpack
try "dct_chop(keep=4)" --shape 100,3,256,256 --device a30
try "dct_chop(keep=4)" --shape 100,3,256,256 --device ipu-bow --json | sed "$HIDE"
try "dct_chop(keep=4)" --shape 100,3,512,512 --device groqchip
try "dct_chop(keep=4)" --shape 100,3,256,256 --device ipu
try "dct_chop(keep=4)" --shape 1,1,8,8 --device a30
try "dct_chop(keep=4)" --shape 100,3,512,512 --device groqchip --json | sed "$HIDE"
try "dct_chop(keep=4) | block_quant(bits=8)" --shape 100,3,64,64 --device ipu-bow
try "dct_chop(keep=4, shape=triangle)" --shape 100,3,32,32 --device ipu-bow
try "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device ipu-bow --only unpack
try "dct_chop(keep=4, serialize=2)" --shape 100,3,512,512 --device sn30 --only pack
for keep in 2 7; do try "dct_chop(keep=$keep)" --shape 100,3,256,256 --device groqchip; done

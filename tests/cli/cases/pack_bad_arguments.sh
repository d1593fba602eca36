# What pack is asked for and cannot do: status 2, one message, nothing written.
try() {
  local status=0
  "$TUCKFOLD" pack "$@" -o out.tuck || status=$?
  [ $status = 2 ] || echo "status $status" >&2
}
"$MAKE_NPY" images.npy "<f4" 10,3,8,8 wave
"$MAKE_NPY" labels.npy "<i8" 10 ramp
"$MAKE_NPY" five.npy "<f4" 5,3,8,8 wave
"$MAKE_NPY" scalar.npy "<f4" "" ramp
"$MAKE_NPY" nosize.npy "<f4" 4,0,8
head -c 1000 /dev/zero >values.bin

try images.npy --codec labl=zstd
try images.npy --codec =zstd
try images.npy --codec data
try images.npy --codec data=raw --codec data=zstd
try images.npy --codec data=nonsense
try labels.npy --codec "data=dct_chop(keep=4)"
try labels.npy --codec "data=bits(width=2)"
try images.npy --codec "dct_chop(keep=9)"
try images.npy --codec raw --target-psnr 40
try images.npy --target-ratio 4 --max-error 1
try images.npy --target-psnr nan
try images.npy --target-ratio -1
try images.npy --target-ratio 100000
try images.npy --max-error -1

try images.npy labels.npy
try images.npy values.bin
try images.npy five.npy --side-by-side
try images.npy labels.npy --side-by-side --rename images=labels
try images.npy --format np
try values.bin
try values.bin --format raw
try values.bin --dtype f32
try values.bin --shape 8
try values.bin --dtype f33 --shape 8
try values.bin --dtype f32 --shape 8x
try values.bin --dtype f32 --shape 0x4
try values.bin --dtype f32 --shape 99999999999x99999999999
try values.bin --dtype f32 --shape 7
try scalar.npy
try nosize.npy

try images.npy --rename data=x --rename data=y
try images.npy --rename nope=y
try images.npy --rename data=
try images.npy --select nope
try images.npy --metadata "[1]"
try images.npy --metadata "{"
touch empty.json
try images.npy --metadata @empty.json
try images.npy --append --resume
try images.npy --append --target-psnr 40
try images.npy --threads 256
try images.npy --samples-per-chunk -1
try images.npy --trial-values 0
try images.npy --seed -1
try images.npy --seed 18446744073709551616
try images.npy --nonsense
try
ls

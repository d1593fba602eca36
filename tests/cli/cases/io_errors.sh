# What the system refuses: status 5, with the path and the reason.
try() { "$TUCKFOLD" "$@" || echo "status $?"; }
"$MAKE_NPY" images.npy "<f4" 10,3,8,8 wave
"$TUCKFOLD" pack images.npy -o images.tuck --quiet
mkdir folder
mkfifo pipe
try pack missing.npy -o out.tuck
try pack "" -o out.tuck
try pack folder -o out.tuck
try pack pipe -o out.tuck
try pack images.npy -o missing/out.tuck
try pack images.npy -o folder
try pack images.npy -o folder --force
try pack images.npy -o out.tuck --metadata @missing.json
try pack images.npy -o out.tuck --metadata @folder
for verb in info verify "repair -o out.tuck" "unpack -o out" "slice 1 -o out" cat; do
  set -- $verb
  try $1 missing.tuck "${@:2}"
  try $1 folder "${@:2}"
  try $1 pipe "${@:2}"
done
try unpack images.tuck -o images.npy/out
try unpack images.tuck -o images.npy
try unpack images.tuck -o missing/out.npy
try unpack images.tuck -o folder/out.npy
try slice images.tuck 1 -o folder/out.npy
try repair images.tuck -o missing/out.tuck
try repair images.tuck -o images.tuck
for verb in info verify; do "$TUCKFOLD" $verb images.tuck >/dev/full || echo "status $?"; done
ls . folder

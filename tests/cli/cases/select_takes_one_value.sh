# --select takes one value each time, so that a file may follow it; commas and repeats name several.
"$MAKE_NPY" image.npy "<f4" 6,8,8 wave
"$MAKE_NPY" label.npy "<i8" 6 ramp
"$TUCKFOLD" pack --side-by-side image.npy label.npy -o all.tuck --quiet
"$TUCKFOLD" pack --select image --side-by-side image.npy label.npy -o image.tuck --codec image=raw --quiet
"$TUCKFOLD" info image.tuck | cut -d ' ' -f 1
"$TUCKFOLD" unpack --select image all.tuck -o image2.npy && cmp image.npy image2.npy
"$TUCKFOLD" unpack --select image,label all.tuck -o both && ls both
"$TUCKFOLD" unpack --select label --select image all.tuck -o each && ls each
"$TUCKFOLD" convert --select label --rename label=y all.tuck -o y.tuck --codec y=raw --quiet
"$TUCKFOLD" info y.tuck | cut -d ' ' -f 1
"$TUCKFOLD" view --select image all.tuck -o sheet.png

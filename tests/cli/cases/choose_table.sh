# How many specs there are, and which is best, depends on the codecs of this build.
"$MAKE_NPY" a.npy '<f4' 4,32,32
shown() { sed -n '1,3p; /^\*/p; $p'; }
"$TUCKFOLD" choose a.npy --target-psnr 40 --threads 1 | shown
"$TUCKFOLD" choose a.npy --target-ratio 6 --threads 1 --trial-values 2048 | shown

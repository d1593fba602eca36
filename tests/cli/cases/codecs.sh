"$TUCKFOLD" codecs | sed "s| \[CUDA\]$||"  # where the build has kernels

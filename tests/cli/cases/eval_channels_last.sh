"$MAKE_NPY" photo.npy '|u1' 16,16,3
"$TUCKFOLD" eval photo.npy --codec raw --png out.png

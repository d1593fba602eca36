"$MAKE_NPY" a.npy '<f4' 16,16
! "$TUCKFOLD" choose a.npy
! "$TUCKFOLD" choose a.npy --target-psnr 40 --max-error 1
! "$TUCKFOLD" choose --target-psnr 40
! "$TUCKFOLD" choose a.npy --target-psnr 40 --fastest --smallest
! "$TUCKFOLD" choose a.npy --target-psnr nan
! "$TUCKFOLD" choose a.npy --max-error -1
! "$TUCKFOLD" choose a.npy --target-ratio 0
! "$TUCKFOLD" choose a.npy --target-psnr 40 --trial-values 0
"$TUCKFOLD" choose a.npy --max-error nan

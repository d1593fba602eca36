"$TUCKFOLD" bench --synthetic 2x3x32x32:u8 --codec 'dct_chop(keep=4)' --threads 2 --min-time 0 --repeat 1

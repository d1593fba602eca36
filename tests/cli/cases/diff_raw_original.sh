# Bare values may begin as a manifest does.
printf '{abcdefghijk' >values.bin
"$TUCKFOLD" pack values.bin --dtype u8 --shape 2x2 -o values.tuck --quiet
"$TUCKFOLD" diff values.tuck values.bin --dtype u8 --shape 2x2
"$TUCKFOLD" diff values.tuck --against values.bin --dtype u8 --shape 4 || echo "exit $?"

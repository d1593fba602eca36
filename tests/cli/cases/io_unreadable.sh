if [ "$(id -u)" = 0 ]; then
  echo "root may read everything"
  exit 77
fi
"$MAKE_NPY" images.npy "<f4" 10,3,8,8 wave
"$TUCKFOLD" pack images.npy -o images.tuck --quiet
mkdir closed
chmod 0 images.npy images.tuck closed
"$TUCKFOLD" pack images.npy -o out.tuck || echo "status $?"
"$TUCKFOLD" info images.tuck || echo "status $?"
"$TUCKFOLD" unpack images.tuck -o out || echo "status $?"
chmod 755 closed images.tuck
chmod 555 closed
"$TUCKFOLD" unpack images.tuck -o closed/out.npy || echo "status $?"

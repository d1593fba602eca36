mkdir bin
echo 'echo never' > bin/tuckfold-foo
PATH="$PWD/bin" "$TUCKFOLD" foo

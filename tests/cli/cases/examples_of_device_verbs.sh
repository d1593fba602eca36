# What --help of export, fits and time shows can be copied; fits answers by its exit status.
mkdir bin
ln -s "$TUCKFOLD" bin/tuckfold
export PATH=$PWD/bin:$PATH
for verb in export fits time; do
  tuckfold $verb --help | sed -n '/^Examples\?:/,$s/^  //p' >examples.txt
  while read -r line; do
    status=0
    bash -eu -o pipefail -c "$line" </dev/null >out.txt || status=$?
    echo "$verb $status"
  done <examples.txt
done
ls

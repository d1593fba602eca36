# What bash would offer at the end of a line.
source <("$TUCKFOLD" completion bash)
offer() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _tuckfold
  echo "$*: ${COMPREPLY[*]}"
}
touch images.npy
offer tuckfold be
offer tuckfold --v
offer tuckfold bench --min
offer tuckfold bench --as ''
offer tuckfold bench im
offer tuckfold completion ''

# Every verb is in each of them.
for shell in zsh fish; do
  "$TUCKFOLD" completion $shell >$shell
  for verb in codecs bench eval choose doctor completion man; do
    grep -q -- "$verb" $shell || echo "$shell lacks $verb"
  done
done
grep -F -- "threads" fish | head -1

for verb in codecs bench eval choose; do
  "$TUCKFOLD" "$verb" --help | grep -A1 '^Example'
done

for verb in codecs bench eval; do
  "$TUCKFOLD" "$verb" --help | grep -A1 '^Example'
done

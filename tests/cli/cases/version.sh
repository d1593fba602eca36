"$TUCKFOLD" --version | grep -Ex 'tuckfold [0-9]+\.[0-9]+\.[0-9]+' >/dev/null

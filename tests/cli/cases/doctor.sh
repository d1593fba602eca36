"$TUCKFOLD" doctor
"$TUCKFOLD" doctor --json | python3 -c 'import json, sys; print([row["what"] for row in json.load(sys.stdin)])'

# The table marks the codecs of which the JSON says so, and no others.
marked=$("$TUCKFOLD" codecs | sed -n 's|^\(\w*\): .* \[CUDA\]$|\1|p' | tr '\n' ' ')
"$TUCKFOLD" codecs --json | python3 -c '
import json, sys
on_cuda = [codec["name"] for codec in json.load(sys.stdin) if codec["cuda"]]
assert on_cuda == sys.argv[1].split(), (on_cuda, sys.argv[1])
' "$marked"

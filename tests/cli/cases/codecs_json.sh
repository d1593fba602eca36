"$TUCKFOLD" codecs --json | python3 -c '
import json, sys
for codec in json.load(sys.stdin):
    print(codec["name"], *(p["name"] + "=" + str(p["default"]) for p in codec["params"]))
    for p in codec["params"]:
        assert p["summary"]
        if p["default"] is None:
            continue  # an optional number
        assert p["default"] in p["words"] if "words" in p else p["min"] <= p["default"] <= p["max"]
'

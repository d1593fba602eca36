"$TUCKFOLD" codecs --json | python3 -c '
import json, sys
for codec in json.load(sys.stdin):
    assert codec["cuda"] in (True, False)
    assert codec["exact"] in (True, False)
    print(codec["name"], *(p["name"] + "=" + str(p["default"]) for p in codec["params"]))
    for p in codec["params"]:
        assert p["summary"]
        if "words" in p:
            assert p["default"] in p["words"]
        elif p["default"] is not None:
            assert p["min"] <= p["default"] <= p["max"]
'

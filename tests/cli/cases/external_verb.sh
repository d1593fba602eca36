mkdir bin
printf '#!/bin/sh\necho "foo got:" "$@"\nexit 7\n' > bin/tuckfold-foo
chmod +x bin/tuckfold-foo
PATH="$PWD/bin:$PATH" "$TUCKFOLD" foo --bar 'two words'

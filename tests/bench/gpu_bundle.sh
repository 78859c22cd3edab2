# Shared by the runs from a bundle (deploy/bundle); sourced with the arguments of the script: BUNDLE
# LOGS [...]. Sets bundle, logs and libraries, and where the test data are if the bundle has them.
set -uo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set\|^\./p' "$0" | grep '^#'; exit 2; }
bundle=$(cd "$1" && pwd) || exit 2
mkdir -p "$2"
logs=$(cd "$2" && pwd) || exit 2
shift 2
libraries="$bundle/lib:/usr/local/cuda/lib64"
if [ -z "${OCTAVO_TEST_DATA:-}" ] && [ -d "$bundle/data" ]; then export OCTAVO_TEST_DATA=$bundle/data; fi

# Wraps the daemon and its programs for the tests: only they get the bundle's libraries; Python keeps the machine's.
wrap_programs() {
  local program
  for program in octavod octavo ring_feed projection_feed bench_read bench_subscribe; do
    [ -e "$bundle/bin/$program" ] || continue
    [ "$(head -c 2 "$bundle/bin/$program")" = '#!' ] && continue
    mv "$bundle/bin/$program" "$bundle/bin/$program.real"
    printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec "%s" "$@"\n' "$libraries" "$bundle/bin/$program.real" >"$bundle/bin/$program"
    chmod +x "$bundle/bin/$program"
  done
  export OCTAVO_BUILD_DIR=$bundle PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python PYTHONDONTWRITEBYTECODE=1
}

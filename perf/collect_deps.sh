#!/usr/bin/env bash
# What perf/gpu_check.sh needs of this machine's packages, as a folder for a machine that has none: DEPS of gpu_check.sh.
#
#   perf/collect_deps.sh FOLDER
set -euo pipefail
[ $# = 1 ] || { echo "usage: perf/collect_deps.sh FOLDER"; exit 2; }
mkdir -p "$1/include" "$1/lib"
for header in doctest/doctest.h hwy/highway.h CLI/CLI.hpp nlohmann/json.hpp fmt/format.h; do
  for root in ${INCLUDE:-/usr/local/include /usr/include}; do
    [ -e "$root/$header" ] && cp -rL "$root/${header%%/*}" "$1/include/" && continue 2
  done
  echo "collect_deps: $header was not found in ${INCLUDE:-/usr/local/include /usr/include}"
  exit 1
done
# A folder that there is not is no reason to end here: what was not found is said below.
# Libraries of another processor, for a cross compiler, lie there too.
found=$({ find ${LIBRARY:-/usr/local/lib /usr/lib} \( -name libhwy.a -o -name libhwy.so.1 \) 2>/dev/null || true; } | sort)
library=$({ grep "/$(uname -m)-" <<<"$found" || echo "$found"; } | head -1)
[ -n "$library" ] || { echo "collect_deps: neither libhwy.a nor libhwy.so.1 was found in ${LIBRARY:-/usr/local/lib /usr/lib}"; exit 1; }
cp -L "$library" "$1/lib/"
du -sh "$1"

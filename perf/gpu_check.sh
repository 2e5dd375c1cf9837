#!/usr/bin/env bash
# Builds, tests and measures a GPU back end on a machine with a GPU, in one command. A short table comes last.
#
#   perf/gpu_check.sh [build] [test] [sanitize] [bench] [gemm] default: build test bench
#   RUNTIME=hip perf/gpu_check.sh [build] [test] [bench]       the HIP back end, on an AMD GPU; never run so far
#
#   BUILD=build/gpu        where to build             ARCH=90-real   architectures to build for (HIP: gfx950, or gfx942;gfx950)
#   OUT=$BUILD/results     JSON and logs              JOBS=$(nproc)
#   DEPS=/path             a folder with include/{doctest,hwy,CLI,nlohmann,fmt} and lib/libhwy.a or lib/libhwy.so.1, if these are not
#                          installed; perf/collect_deps.sh makes one
#   GRID=1500 INSTANCE=25  configurations of the grid, and per instance
#   SUITE=full             of `fp4pa bench --suite`      AXES="--format mxfp4"  axes that replace the suite's own
#   RUNS=15                timed runs of a configuration PEERS="--sweep"        arguments of perf/peers.py, where there is PyTorch
#   SHARE=1                the tests take every SHARE-th of the drawn configurations
#   TEST_SECONDS=400       how long test's first program may run
#   SM120_SECONDS=200      how long its second may, SM120's kernels in software (CUDA)
#   SANITIZE_SECONDS=140   how long each tool of compute-sanitizer may run on each of the two
#   SANITIZE_GRID=12       configurations of the grid under each of these tools
#
# Needed: nvcc 12.9 or newer (HIP: ROCm 6.4 or newer, or clang 20 and libamdhip64), CMake 3.25, ninja, a C++20 host compiler
# with OpenMP; doctest's header, Google Highway, and for the tool CLI11, nlohmann-json and fmt.
set -uo pipefail
case ${1:-} in
  -h | --help) awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
esac
cd "$(dirname "$0")/.."
RUNTIME=${RUNTIME:-cuda}; JOBS=${JOBS:-$(nproc)}
case $RUNTIME in
  cuda) BUILD=${BUILD:-build/gpu}; ARCH=${ARCH:-90-real}; ALLOWED="build test sanitize bench gemm"; TEST=fp4pa_test_gpu ;;
  hip) BUILD=${BUILD:-build/gpu-hip}; ARCH=${ARCH:-gfx942;gfx950}; ALLOWED="build test bench"; TEST=fp4pa_test_hip ;;
  *) echo "RUNTIME is $RUNTIME; allowed: cuda, hip"; exit 2 ;;
esac
STEPS=${*:-build test bench}
for step in $STEPS; do
  case " $ALLOWED " in
    *" $step "*) ;;
    *) echo "unknown step $step; allowed with RUNTIME=$RUNTIME: $ALLOWED"; exit 2 ;;
  esac
done
OUT=${OUT:-$BUILD/results}
mkdir -p "$BUILD" "$OUT"
BUILD=$(cd "$BUILD" && pwd)
OUT=$(cd "$OUT" && pwd)
summary=()
failed=0

note() { summary+=("$(printf '%-10s %-6s %s' "$1" "$2" "$3")"); [ "$2" != FAILED ] || failed=1; }

# Highway as a package, out of a bare folder of headers and one static library.
prepare_deps() {
  [ -n "${DEPS:-}" ] || return 0
  DEPS=$(cd "$DEPS" && pwd)
  mkdir -p "$BUILD/deps"
  local library kind
  library=$(ls "$DEPS"/lib/libhwy.a "$DEPS"/lib/libhwy.so.1 2>/dev/null | head -1)
  case $library in *.a) kind=STATIC ;; *) kind=SHARED ;; esac
  cat >"$BUILD/deps/hwyConfig.cmake" <<CMAKE
add_library(hwy::hwy $kind IMPORTED)
set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION "$library"
                      INTERFACE_INCLUDE_DIRECTORIES "$DEPS/include")
CMAKE
  deps=(-Dhwy_DIR="$BUILD/deps" -DFP4PA_DOCTEST_INCLUDE="$DEPS/include" -DCMAKE_PREFIX_PATH="$DEPS")
}

build() {
  deps=()
  prepare_deps
  local start=$SECONDS engine targets
  if [ "$RUNTIME" = hip ]; then
    engine=(-DFP4PA_CUDA=OFF -DFP4PA_HIP=ON -DFP4PA_HIP_ARCHITECTURES="$ARCH")
    targets=("$TEST" fp4pa_tool)
  else
    engine=(-DFP4PA_CUDA=ON -DFP4PA_HIP=OFF -DFP4PA_CUDA_ARCHITECTURES="$ARCH")
    targets=("$TEST" fp4pa_test_sm120 fp4pa_tool fp4pa fp4pa_gpu_gemm)
  fi
  if ! cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release "${engine[@]}" -DFP4PA_TESTS=OFF \
       -DFP4PA_TOOL=ON -DFP4PA_EXAMPLES=OFF -DFP4PA_BENCHMARKS=OFF \
       -DCMAKE_PROJECT_fp4pa_INCLUDE="$PWD/perf/gpu_check.cmake" "${deps[@]}" >"$OUT/configure.log" 2>&1 ||
     ! ninja -C "$BUILD" -j "$JOBS" "${targets[@]}" >"$OUT/build.log" 2>&1; then
    tail -40 "$OUT/configure.log" "$OUT/build.log" 2>/dev/null
    note build FAILED "see $OUT/build.log"
  elif [ "$RUNTIME" = hip ]; then
    note build ok "$((SECONDS - start)) s"
  else
    note build ok "$((SECONDS - start)) s; $(grep -c 'bytes spill' "$OUT/build.log") kernels, $(grep 'bytes spill' "$OUT/build.log" | grep -vc ' 0 bytes spill stores') with spills"
  fi
}

tests() {
  local start=$SECONDS
  if FP4PA_TEST_SHARE=${SHARE:-1} FP4PA_GRID_CASES=${GRID:-1500} FP4PA_INSTANCE_CASES=${INSTANCE:-25} timeout "${TEST_SECONDS:-400}" \
       "$BUILD/bin/$TEST" "--test-case-exclude=*what is wrong with a call*" "$@" >"$OUT/test.log" 2>&1; then
    note test ok "$((SECONDS - start)) s; $(grep 'assertions' "$OUT/test.log")"
  else
    grep -A12 'ERROR' "$OUT/test.log" | head -80
    tail -5 "$OUT/test.log"
    note test FAILED "$(grep -E 'test cases|back end' "$OUT/test.log" | tr '\n' ' ')"
  fi
  [ "$RUNTIME" = cuda ] && sm120
}

# SM120's kernels with its instructions in software.
sm120() {
  local start=$SECONDS
  if timeout "${SM120_SECONDS:-200}" "$BUILD/bin/fp4pa_test_sm120" >"$OUT/sm120.log" 2>&1; then
    note sm120 ok "$((SECONDS - start)) s; $(grep 'assertions' "$OUT/sm120.log")"
  else
    grep -A12 'ERROR' "$OUT/sm120.log" | head -80
    tail -5 "$OUT/sm120.log"
    note sm120 FAILED "$(grep -E 'test cases|back end' "$OUT/sm120.log" | tr '\n' ' ')"
  fi
}

sanitize() {
  local tool
  for tool in memcheck racecheck synccheck initcheck; do
    if FP4PA_MIRROR=exact FP4PA_GRID_CASES=${SANITIZE_GRID:-12} FP4PA_INSTANCE_CASES=1 timeout "${SANITIZE_SECONDS:-140}" \
         compute-sanitizer --tool "$tool" --error-exitcode 9 "$BUILD/bin/fp4pa_test_gpu" \
         "--test-case=*grid*,*every compiled instance*" >"$OUT/$tool.log" 2>&1; then
      note "$tool" ok "$(tail -1 "$OUT/$tool.log")"
    else
      note "$tool" FAILED "$(grep -m2 -E '=========|ERROR' "$OUT/$tool.log" | tr '\n' ' ')"
    fi
    if FP4PA_MIRROR=exact FP4PA_SM120_CASES=1 timeout "${SANITIZE_SECONDS:-140}" \
         compute-sanitizer --tool "$tool" --error-exitcode 9 "$BUILD/bin/fp4pa_test_sm120" \
         "--test-case=*emulator*" >"$OUT/sm120_$tool.log" 2>&1; then
      note "$tool" ok "SM120 in software: $(tail -1 "$OUT/sm120_$tool.log")"
    else
      note "$tool" FAILED "SM120 in software: $(grep -m2 -E '=========|ERROR' "$OUT/sm120_$tool.log" | tr '\n' ' ')"
    fi
  done
}

# The suite, its peers on the same machine, and a table of both.
bench() {
  local start=$SECONDS axes peers json=("$OUT/bench.json")
  rm -f "$OUT"/bench.* "$OUT"/peers.*
  read -ra axes <<<"${AXES:-}"
  read -ra peers <<<"${PEERS---sweep}"
  if "$BUILD/bin/fp4pa" bench --suite "${SUITE:-full}" --backend "$RUNTIME" --repeats "${RUNS:-15}" --progress "${axes[@]}" \
       --json "$OUT/bench.json" --csv "$OUT/bench.csv" >"$OUT/bench.txt" 2>"$OUT/bench.log"; then
    note bench ok "$((SECONDS - start)) s; $OUT/bench.json"
  else
    tail -5 "$OUT/bench.log"
    note bench FAILED "$(tail -1 "$OUT/bench.log")"
  fi
  if [ "$RUNTIME" = cuda ]; then
    start=$SECONDS
    if python3 perf/peers.py --library "$BUILD/libfp4pa.so" --json "$OUT/peers.json" "${peers[@]}" >"$OUT/peers.txt" 2>&1; then
      json+=("$OUT/peers.json")
      note peers ok "$((SECONDS - start)) s; $OUT/peers.json"
    else
      note peers "none" "$(tail -1 "$OUT/peers.txt")"
    fi
  fi
  [ ! -e "$OUT/bench.json" ] || python3 perf/table.py "${json[@]}" | tee "$OUT/table.txt"
}

# Against cuBLAS, where there is a PyTorch.
gemm() {
  if "$BUILD/bin/fp4pa_gpu_gemm" --json "$OUT/gemm.json" 2>&1 | tee "$OUT/gemm.txt"; then
    note gemm ok "$OUT/gemm.json"
  else
    note gemm FAILED "see above"
  fi
  python3 perf/gemm_peers.py --json "$OUT/gemm_peers.json" 2>&1 | tee "$OUT/gemm_peers.txt" || true
}

for step in $STEPS; do
  case $step in
    build) build ;;
    test) tests ;;
    sanitize) sanitize ;;
    bench) bench ;;
    gemm) gemm ;;
  esac
  [ "$step" = build ] && [ $failed = 1 ] && break
done
echo "--- gpu_check"
printf '%s\n' "${summary[@]}"
exit $failed

#!/usr/bin/env bash
# Builds, tests and measures a GPU back end on a machine with a GPU, in one command. A short table comes last.
#
#   perf/gpu_check.sh [build] [test] [python] [sanitize] [bench] [gemm]    Default: build test bench. python: the Python package and its tests;
#                                                                                gemm: matrix products alone
#   RUNTIME=hip perf/gpu_check.sh [build] [test] [python] [bench] [gemm]   the HIP back end, on an AMD GPU; never run so far
#
#   BUILD=build/gpu        where to build             OUT=$BUILD/results     JSON and logs              JOBS=$(nproc)
#   ARCH=90-real           architectures to build for (HIP: gfx950, or gfx942;gfx950); without it those of the GPUs here, and where
#                          there is none 90-real (HIP: both)
#   DEPS=/path             a folder with include/{doctest,hwy,CLI,nlohmann,fmt} and lib/libhwy.a or lib/libhwy.so.1, if these are
#                          not installed; perf/collect_deps.sh makes one
#   GRID=1500 INSTANCE=25  configurations of the grid, and per instance
#   SUITE=full             of `fp4pa bench --suite`      AXES="--format mxfp4"  axes that replace bench's suite's own
#   RUNS=15                timed runs of a configuration PEERS="--sweep"        arguments of perf/peers.py, where there is PyTorch
#   SHARE=1                the tests take every SHARE-th of the drawn configurations
#   TEST_SECONDS=600       how long test's first program may run; its others have 200 seconds each, or
#   SM120_SECONDS=200      SM120's kernels in software (CUDA)
#   SANITIZE_TOOLS="memcheck racecheck synccheck initcheck"
#   SANITIZE_PARTS="attention lines products cache dense sm120"      what each of these tools of compute-sanitizer looks at
#   SANITIZE_SECONDS=300   how long a tool may look at a part
#   SANITIZE_GRID=12       configurations of the grid there     SANITIZE_SHARE=64   and of the cache's, one in so many
#
# Needed: nvcc 12.9 or newer (HIP: ROCm 6.4 or newer, or clang 20 and libamdhip64), CMake 3.25, ninja, a C++20 host compiler
# with OpenMP; doctest's header, Google Highway, and for the tool CLI11, nlohmann-json and fmt. python: also PyTorch, nanobind, ml_dtypes and pytest of python3.
set -uo pipefail
case ${1:-} in
  -h | --help) awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "$0"; exit 0 ;;
esac
cd "$(dirname "$0")/.."
RUNTIME=${RUNTIME:-cuda}; JOBS=${JOBS:-$(nproc)}

# The architectures of the GPUs in this machine, a list for CMake; nothing where the driver's tools are missing or see none. Kernels
# for sm_90a and for SM120 are built whatever stands here (cuda/CMakeLists.txt).
gpus() {
  if [ "$RUNTIME" = cuda ]; then
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | sed -nE 's/^([0-9]+)\.([0-9]+)$/\1\2-real/p'
  else
    { rocm_agent_enumerator || rocminfo; } 2>/dev/null | grep -oE 'gfx(942|950)'
  fi | sort -u | paste -sd ';'
}
ARCH=${ARCH:-$(gpus)}
case $RUNTIME in
  cuda) BUILD=${BUILD:-build/gpu}; ARCH=${ARCH:-90-real}; ALLOWED="build test python sanitize bench gemm"; TEST=fp4pa_test_gpu ;;
  hip) BUILD=${BUILD:-build/gpu-hip}; ARCH=${ARCH:-gfx942;gfx950}; ALLOWED="build test python bench gemm"; TEST=fp4pa_test_hip ;;
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

note() { summary+=("$(printf '%-13s %-6s %s' "$1" "$2" "$3")"); [ "$2" != FAILED ] || failed=1; }

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

# configure OPTIONS...: the build folder, the same for every step.
configure() {
  local deps=() engine
  prepare_deps
  if [ "$RUNTIME" = hip ]; then
    engine=(-DFP4PA_CUDA=OFF -DFP4PA_HIP=ON -DFP4PA_HIP_ARCHITECTURES="$ARCH")
  else
    engine=(-DFP4PA_CUDA=ON -DFP4PA_HIP=OFF -DFP4PA_CUDA_ARCHITECTURES="$ARCH")
  fi
  cmake -S . -B "$BUILD" -G Ninja -DCMAKE_BUILD_TYPE=Release "${engine[@]}" -DFP4PA_TESTS=OFF -DFP4PA_TOOL=ON -DFP4PA_EXAMPLES=ON \
    -DFP4PA_BENCHMARKS=OFF -DCMAKE_PROJECT_fp4pa_INCLUDE="$PWD/perf/gpu_check.cmake" "${deps[@]}" "$@"
}

build() {
  local start=$SECONDS targets
  if [ "$RUNTIME" = hip ]; then
    targets=("$TEST" fp4pa_test_hip_gemm fp4pa_tool)
  else
    targets=("$TEST" fp4pa_test_gpu_direct fp4pa_test_gpu_no_code fp4pa_test_gpu_formats fp4pa_test_sm120 fp4pa_tool fp4pa
             example_generate_on_cuda_cpp)
  fi
  if ! configure >"$OUT/configure.log" 2>&1 ||
     ! ninja -C "$BUILD" -j "$JOBS" "${targets[@]}" >"$OUT/build.log" 2>&1; then
    tail -40 "$OUT/configure.log" "$OUT/build.log" 2>/dev/null
    note build FAILED "see $OUT/build.log"
  elif ! build_conformance >"$OUT/conformance_build.log" 2>&1; then
    tail -20 "$OUT/conformance_build.log"
    note build FAILED "see $OUT/conformance_build.log"
  elif [ "$RUNTIME" = hip ]; then
    note build ok "$((SECONDS - start)) s for $ARCH"
  else
    local spills="bytes spill"
    note build ok "$((SECONDS - start)) s for $ARCH; $(grep -c "$spills" "$OUT/build.log") kernels compiled, $(
      grep "$spills" "$OUT/build.log" | grep -vc " 0 $spills stores") of them with spills"
  fi
}

# The programs of tests/conformance/device, whose CMakeLists.txt is for a tree with all the tests.
conformance_programs() { if [ "$RUNTIME" = cuda ]; then echo sm80 sm120; else echo "${ARCH//;/ }"; fi; }
build_conformance() {
  local name options include
  for name in $(conformance_programs); do
    local common=(-std=c++20 -O2 -I. -Iinclude -o "$BUILD/bin/conformance_$name")
    case $name in
      sm80) options=("-gencode=arch=compute_80,code=[sm_80,compute_80]" "-gencode=arch=compute_90,code=sm_90") ;;
      sm120) options=("-gencode=arch=compute_120f,code=[sm_120f,sm_121f]") ;;
      *) options=(--offload-arch="$name") ;;
    esac
    if [ "$RUNTIME" = cuda ]; then
      "$(cached CMAKE_CUDA_COMPILER)" --expt-relaxed-constexpr "${options[@]}" "${common[@]}" \
        "tests/conformance/device/$name.cu" backends/emulator/isa/product.cpp || return 1
    else
      include=$(cached FP4PA_HIP_INCLUDE_DIR)
      "$(cached FP4PA_HIP_COMPILER)" -x hip -nogpulib -nogpuinc -Wno-inline-asm -D__HIP_PLATFORM_AMD__ "-I$include" \
        "${options[@]}" "${common[@]}" "tests/conformance/device/$name.hip" -x c++ backends/emulator/isa/product.cpp \
        "-L${include%/*}/lib" -lamdhip64 || return 1
    fi
  done
}
cached() { sed -n "s/^$1:[^=]*=//p" "$BUILD/CMakeCache.txt"; }

# run_tests NAME SECONDS PROGRAM ARGUMENTS...: a test program, its log and its line of the summary. A program of one architecture
# ends with 77 where there is another.
run_tests() {
  local name=$1 limit=$2 program=$3 start=$SECONDS status=0
  shift 3
  if [ ! -x "$BUILD/bin/$program" ]; then
    note "$name" FAILED "$program is not built"
    return
  fi
  timeout "$limit" "$BUILD/bin/$program" "$@" >"$OUT/$name.log" 2>&1 || status=$?
  if [ $status = 0 ]; then
    note "$name" ok "$((SECONDS - start)) s; $(grep 'assertions' "$OUT/$name.log" || tail -1 "$OUT/$name.log")"
    grep -E 'MESSAGE: .*(not run|left out)' "$OUT/$name.log"
  elif [ $status = 77 ] && [ "${program#conformance_}" != "$program" ]; then
    note "$name" none "$(tail -1 "$OUT/$name.log")"
  else
    grep -A12 'ERROR' "$OUT/$name.log" | head -80
    tail -5 "$OUT/$name.log"
    note "$name" FAILED "exit status $status; $(grep -E 'test cases|back end' "$OUT/$name.log" | tr '\n' ' ')"
  fi
}

tests() {
  local program
  local -x FP4PA_TEST_SHARE=${SHARE:-1} FP4PA_GRID_CASES=${GRID:-1500} FP4PA_INSTANCE_CASES=${INSTANCE:-25}
  run_tests test "${TEST_SECONDS:-600}" "$TEST" "--test-case-exclude=*what is wrong with a call*"
  for program in $(conformance_programs); do run_tests "atoms.$program" 200 "conformance_$program"; done
  if [ "$RUNTIME" = hip ]; then
    FP4PA_GEMM_CASES=${FP4PA_GEMM_CASES:-150} run_tests test.gemm 200 fp4pa_test_hip_gemm
  else
    run_tests formats 200 fp4pa_test_gpu_formats
    run_tests direct 200 fp4pa_test_gpu_direct
    run_tests no_code 60 fp4pa_test_gpu_no_code
    run_tests example 60 example_generate_on_cuda_cpp
    run_tests sm120 "${SM120_SECONDS:-200}" fp4pa_test_sm120
  fi
}

# The Python package in the same build folder, and its tests with PyTorch on the GPU, which may not be skipped
# (AMD's cards are "cuda" to PyTorch, too).
python() {
  local start=$SECONDS log=$OUT/python.log
  if ! { configure -DFP4PA_PYTHON=ON -DPython_EXECUTABLE="$(command -v python3)" && ninja -C "$BUILD" -j "$JOBS" fp4pa_python; } >"$log" 2>&1; then
    tail -20 "$log"
    note python FAILED "see $log"
  elif PYTHONPATH="$BUILD/python" FP4PA_PYTHON_REQUIRE=torch,torch-cuda python3 -m pytest -q -p no:cacheprovider python/tests >"$log" 2>&1 &&
       PYTHONPATH="$BUILD/python" python3 examples/generate_with_torch.py cuda >>"$log" 2>&1; then
    note python ok "$((SECONDS - start)) s; $(grep -E '[0-9]+ passed' "$log"); $(tail -1 "$log")"
  else
    tail -60 "$log"
    note python FAILED "$(tail -1 "$log")"
  fi
}

# Each part under every tool of compute-sanitizer: a few calls of each kernel, by test cases that are chosen by their names.
sanitize() {
  local tool part program cases
  local -x FP4PA_MIRROR=exact FP4PA_GRID_CASES=${SANITIZE_GRID:-12} FP4PA_INSTANCE_CASES=1 FP4PA_SM120_CASES=1
  local -x FP4PA_TEST_SHARE=${SANITIZE_SHARE:-64}
  for tool in ${SANITIZE_TOOLS:-memcheck racecheck synccheck initcheck}; do
    for part in ${SANITIZE_PARTS:-attention lines products cache dense sm120}; do
      program=fp4pa_test_gpu
      case $part in
        attention)
          cases="the drawn grid*,every compiled instance*"
          [ "$tool" != memcheck ] || cases+=",a full cache*"
          ;;
        lines) cases="many units of ragged*" ;;
        products)
          cases="every product kernel once*,weights: NVFP4's multiplier*"
          # Hazards among so many threads of a cluster are counted for more than nine minutes.
          # A comma parts names, and stands as ? in them.
          [ "$tool" != racecheck ] ||
            cases="every product kernel once: sm_90? up to 16 rows of X,*plain products? blocks of 48*,every product kernel once: sm_80*"
          ;;
        cache) cases="copy_pages on a GPU: *,slots on a GPU*,append and gather*,gather: one*,two tiers*,quantize*" ;;
        dense) cases="dense: every head_dim*,dense: K smoothing*,mxfp8: strides*,mxfp8: queries of*,merge_states*" ;;
        sm120) program=fp4pa_test_sm120 cases="*emulator*" ;;
        *) note "$tool" FAILED "SANITIZE_PARTS has $part; allowed: attention, lines, products, cache, dense, sm120"; continue ;;
      esac
      sanitize_part "$tool" "$part" "$program" "$cases"
    done
  done
}
sanitize_part() {
  local tool=$1 part=$2 program=$3 cases=$4 start=$SECONDS status=0 log=$OUT/$1_$2.log
  timeout "${SANITIZE_SECONDS:-300}" compute-sanitizer --tool "$tool" --error-exitcode 9 "$BUILD/bin/$program" \
    "--test-case=$cases" >"$log" 2>&1 || status=$?
  if [ $status = 124 ]; then
    note "$tool" FAILED "$part: stopped after ${SANITIZE_SECONDS:-300} s, with $(grep -cE '=+ (Error|Invalid|Un)' "$log") findings"
  elif [ $status != 0 ]; then
    note "$tool" FAILED "$part: exit status $status; $(grep -m2 -E '=========|ERROR' "$log" | tr '\n' ' ')"
  elif ! grep -qE 'test cases: +[1-9]' "$log"; then
    note "$tool" FAILED "$part: no test case has one of these names: $cases"
  else
    note "$tool" ok "$part: $((SECONDS - start)) s; $(tail -1 "$log")"
  fi
}

# measure STEP SUITE PEERS_FILE PEERS_ARGUMENTS...: a suite with the caller's axes, its peers on the same machine, and a table of both.
measure() {
  local step=$1 suite=$2 peers=$OUT/$3.json start=$SECONDS json=("$OUT/$1.json")
  shift 3
  rm -f "$OUT/$step".* "${peers%.json}".*
  if "$BUILD/bin/fp4pa" bench --suite "$suite" --backend "$RUNTIME" --repeats "${RUNS:-15}" --progress "${axes[@]}" \
       --json "$OUT/$step.json" --csv "$OUT/$step.csv" >"$OUT/$step.txt" 2>"$OUT/$step.log"; then
    note "$step" ok "$((SECONDS - start)) s; $OUT/$step.json"
  else
    tail -5 "$OUT/$step.log"
    note "$step" FAILED "$(tail -1 "$OUT/$step.log")"
  fi
  if [ "$RUNTIME" = cuda ]; then
    start=$SECONDS
    if python3 perf/peers.py --library "$BUILD/libfp4pa.so" --json "$peers" "$@" >"${peers%.json}.txt" 2>&1; then
      json+=("$peers")
      note peers ok "$((SECONDS - start)) s; $peers"
    else
      note peers "none" "$(tail -1 "${peers%.json}.txt")"
    fi
  fi
  [ ! -e "$OUT/$step.json" ] || python3 perf/table.py "${json[@]}" | tee "$OUT/$step.table.txt"
}

bench() {
  local axes peers
  read -ra axes <<<"${AXES:-}"
  read -ra peers <<<"${PEERS---sweep}"
  measure bench "${SUITE:-full}" peers "${peers[@]}"
}

gemm() {
  local axes=()
  measure gemm gemm gemm_peers --only gemm
}

for step in $STEPS; do
  case $step in
    build) build ;;
    test) tests ;;
    python) python ;;
    sanitize) sanitize ;;
    bench) bench ;;
    gemm) gemm ;;
  esac
  [ "$step" = build ] && [ $failed = 1 ] && break
done
echo "--- gpu_check"
printf '%s\n' "${summary[@]}"
exit $failed

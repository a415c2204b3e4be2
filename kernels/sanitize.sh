#!/bin/sh
# Run the threads under ThreadSanitizer, and the kernel tests on a build with AddressSanitizer and
# UndefinedBehaviorSanitizer.
# Needs on PATH: cmake, ninja, a C++ compiler, and a python that has nanobind and the tests' needs.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v python)
work=$root/build/sanitized
mkdir -p "$work/tree"

# ThreadSanitizer watches programs of ours alone: it would have to be built into Python as well.
threads=$work/threads
cmake -G Ninja -S "$root/kernels" -B "$threads" -DFLOORLINE_SANITIZE=thread -DFLOORLINE_MODULE=OFF \
  -DCMAKE_BUILD_TYPE=Sanitize >/dev/null
cmake --build "$threads" --target team_driver logits_driver
# It needs addresses where it expects them; some containers do not let anybody say so.
fixed=$(command -v setarch || true)
if [ -n "$fixed" ] && "$fixed" -R true 2>/dev/null; then fixed="$fixed -R"; else fixed=; fi
export TSAN_OPTIONS=halt_on_error=1
$fixed "$threads/team_driver" 200
$fixed "$threads/logits_driver" portable 3 >"$threads/three"
$fixed "$threads/logits_driver" portable 1 >"$threads/one"
cmp "$threads/one" "$threads/three"
echo "ThreadSanitizer: no race in the team, nor in whole steps by three threads"

cmake -G Ninja -S "$root/kernels" -B "$work/build" -DFLOORLINE_SANITIZE=address \
  -DCMAKE_BUILD_TYPE=Sanitize -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$work/build" --target _native
# A copy of what the tests import, so that the sanitised module stands where the real one would.
for package in core costmodel floorline kernels tests; do
  rm -rf "$work/tree/$package"
  cp -r "$root/$package" "$work/tree/$package"
done
rm -f "$work"/tree/floorline/_native*.so
cp "$work"/build/_native*.so "$work/tree/floorline/"
cp "$root/pyproject.toml" "$work/tree/"
cd "$work/tree"
libraries="$(${CXX:-c++} -print-file-name=libasan.so) $(${CXX:-c++} -print-file-name=libstdc++.so)"
# An editable install would put its own module first: its finder is taken out.
run='import sys, pytest
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in type(f).__module__]
sys.path.insert(0, ".")
from floorline import _native
assert _native.__file__.startswith(sys.argv[1]), _native.__file__
sys.exit(pytest.main(sys.argv[2:]))'
# Python itself leaks at exit. Reports bypass what pytest captures.
LD_PRELOAD="$libraries" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
  "$python" -c "$run" "$work" -q -s -p no:cacheprovider --timeout 900 tests/unit/kernels

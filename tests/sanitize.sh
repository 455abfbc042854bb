#!/usr/bin/env bash
# The tests of the kernels, the structures, the exchange's mailbox and eight programs of ranks on the CPU: under
# AddressSanitizer and UBSan, under ThreadSanitizer, and with 32-lane tiles. One failure ends it. BUILDS names some of the
# three; SAMPLE=1 leaves out what is much like the rest, and has each structure in one; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
builds=${BUILDS:-"lanes address thread"}
read -ra cxx <<<"${CXX:-g++}"

# Tests of the kernels themselves: the loader's own start compilers and processes, which gain nothing from this.
tests=(tests/kernels/test_platform.py tests/kernels/test_launch.py tests/exchange/test_mailbox.py)
# Programs that ranks run together, which are threads there.
cores=tests/algorithms/density/test_core_number.py
tests+=(tests/exchange/test_links.py::test_messages_that_sockets_take_in_parts tests/exchange/test_gateway_messages.py)
tests+=("$cores::test_both_drivers" "$cores::test_rows_wait_for_room_in_the_inboxes" "$cores::test_long_and_short_rows_of_a_tile_fit_together")
alike= structures=(tests/structures)
if [[ ${SAMPLE:-} ]]; then  # one such program; structures with weights, which have all arrays; streams, but not all of each
  alike=' and not plain and not state_machine and not of_every_width and not large_level and not far_apart'
  alike+=' and not leaves_with_many and not around_empty and not come_and_go and (not mixed_stream or slabgraph)'
else
  tests+=(tests/algorithms/{communities/test_{components,label_propagation},centrality/test_betweenness}.py::test_both_drivers)
  tests+=(tests/algorithms/centrality/test_pagerank.py::test_both_drivers_give_the_same_bits_on_any_ranks)
  tests+=(tests/algorithms/{communities/test_{strong_components,louvain},sampling/test_sampling}.py::test_both_drivers)
fi

export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0:exitcode=66  # the interpreter frees nothing at its end
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:exitcode=66:report_signal_unsafe=0
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1  # threads of libraries that are not instrumented

runtime() {  # the sanitizer's library, which must be loaded before the interpreter
  local path
  path=$("${cxx[@]}" -print-file-name="$1")
  [[ -f $path ]] || { echo "sanitize: ${cxx[*]} has no $1; install it, or set BUILDS" >&2; exit 1; }
  echo "$path"
}

for build in $builds; do
  # structures with options have the same races, lanes and nearly the same bounds; "-m options" as arguments runs them
  marked='not gpu and not slow and not combination and not paper and not options'
  chosen="not real_graph and not thread_sanitizer$alike"
  # of names, of memory and of numbers, not of kernels
  chosen+=' and not test_create and not memory_follows and not leaves_are_numbered'
  case $build in
    lanes) preload= chosen+=' and not mailbox' own="lpma graphvine hornet sample_sort" ;;  # whose ranks are threads, not lanes
    address) preload=$(runtime libasan.so) own="gpma_plus slabgraph" ;;
    thread) preload=$(runtime libtsan.so) own="gpma mixed_stream" ;;
    *) echo "sanitize: BUILDS are lanes, address and thread, not $build" >&2; exit 2 ;;
  esac
  [[ ${SAMPLE:-} ]] && structures=($(printf 'tests/structures/test_%s.py ' $own))  # each in one build
  echo "== $build"
  started=$SECONDS
  status=0
  MGRAPH_HOST_BUILD=$build timeout --foreground --kill-after=10 1800 env ${preload:+LD_PRELOAD=$preload} \
    "$python" -m pytest -q -x -n "${JOBS:-2}" --dist loadfile -p no:cacheprovider -r f --timeout 600 -k "$chosen" -m "$marked" "$@" "${tests[@]}" "${structures[@]}" || status=$?
  if ((status)); then
    echo "sanitize: the $build build failed with status $status" >&2
    exit "$status"
  fi
  echo "== $build passed in $((SECONDS - started)) s"
done

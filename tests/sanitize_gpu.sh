#!/usr/bin/env bash
# The structures' tests on a GPU under compute-sanitizer's memcheck, racecheck and synccheck: a line a tool, and failure where one
# found something. First the tests run without a tool, which compiles the kernels. Then each tool has to find a planted bug, and has
# SECONDS_EACH seconds for the tests, in turns of their classes: five minutes in all. TOOLS names some of the three, COMPUTE_SANITIZER
# the program, LOGS a folder; arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-.venv/bin/python}
tools=${TOOLS:-"memcheck racecheck synccheck"}
seconds=${SECONDS_EACH:-70}
logs=${LOGS:-$(mktemp -d)}
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer")}
command -v "$sanitizer" >/dev/null ||
  { echo "sanitize_gpu: no $sanitizer; install the CUDA toolkit's compute-sanitizer, or name it in COMPUTE_SANITIZER" >&2; exit 2; }
mkdir -p "$logs"

# What takes minutes under a tool, what launches hardly a kernel, and what measures the memory pool, which is off here.
left_out="not real_graph and not state_machine and not million and not come_and_go and not in_one_row and not many_keys \
and not sizes_of_batches and not bad_ and not without_memory and not reserved"

export PYTHONPATH="$PWD:$PWD/tests${PYTHONPATH:+:$PYTHONPATH}" MGRAPH_TEST_SECONDS=$seconds
tests=("$python" -m pytest -q -x -p under_sanitizer -p no:cacheprovider -o timeout=0 -m 'gpu and not paper and not options'
  -k "$left_out" "$@" tests/structures)

ran() { grep -oE '^[1-9][0-9]* passed.*' "$1" | tail -n 1; }  # LOG: pytest's last line; nothing where no test passed

watched() {  # LOG COMMAND...: its status, 124 where it did not end
  local log=$1 api=()
  shift
  [[ $tool == memcheck ]] && api=(--report-api-errors no)  # tests ask for more memory than there is
  timeout --kill-after=10 $((seconds + 120)) "$sanitizer" --tool "$tool" --kernel-regex kns=mgraph_ --error-exitcode 66 \
    ${api[@]+"${api[@]}"} "$@" >"$log" 2>&1
}

findings() {  # LOG: how many there are, warnings among them; nothing where the tool did not come to its summary
  awk '/^=+ (ERROR|RACECHECK) SUMMARY:/ { found += $4; any = 1 } END { if (any) print found }' "$1"
}

started=$SECONDS log=$logs/plain.log status=0
timeout --kill-after=10 $((seconds + 120)) "${tests[@]}" >"$log" 2>&1 || status=$?
if ((status)) || [[ -z $(ran "$log") ]]; then
  echo "no tool   FAILED: status $status, or no test ran; see $log" >&2
  exit 1
fi
printf '%-9s %s (%d s)\n' "no tool" "$(ran "$log")" $((SECONDS - started))

failed=0
for tool in $tools; do
  started=$SECONDS log=$logs/$tool.log planted=$logs/$tool.planted.log
  verdict=clean status=0
  watched "$planted" "$python" tests/under_sanitizer.py "$tool" || true
  found=$(findings "$planted")
  if [[ -z $found || $found == 0 ]]; then
    verdict="FAILED: it does not find a planted bug here, see $planted"
  else
    watched "$log" "${tests[@]}" || status=$?
    found=$(findings "$log")
    if [[ -n $found && $found != 0 ]]; then verdict="FAILED: $found findings, see $log"
    elif ((status)); then verdict="FAILED: status $status, see $log"
    elif [[ -z $found ]]; then verdict="FAILED: no summary in $log"
    elif [[ -z $(ran "$log") ]]; then verdict="FAILED: no test ran, see $log"
    else verdict="clean: $(ran "$log")"
    fi
  fi
  [[ $verdict == clean* ]] || failed=1
  printf '%-9s %s (%d s)\n' "$tool" "$verdict" $((SECONDS - started))
done
exit "$failed"

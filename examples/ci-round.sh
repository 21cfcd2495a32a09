#!/usr/bin/env bash
# One round of a capacity gate: run, decide, look at the trend. Everything comes from the environment:
#   PLAN (plan JSON)  ROUNDS (a folder that CI keeps between jobs)  LOAD (options of locust: -H, --workload, -t, ...)
# Exit code: the verdict's (0 hold, 10..17 change something, 20..22 no advice, 1 a wrong setting).
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
mkdir -p "$ROUNDS"

# shellcheck disable=SC2086  # LOAD is several words
"$python" -m locust -f locustfile.py --headless --plan "$PLAN" --run-dir "$ROUNDS/runs" $LOAD
code=$?
[ "$code" -eq 1 ] || [ "$code" -eq 2 ] && exit "$code" # nothing was measured

run=$(ls -d "$ROUNDS"/runs/*/ | tail -n 1)
"$python" -m planner decide "$PLAN" "$run" -o "$ROUNDS/next-plan.json" >"$ROUNDS/verdict.txt"
"$python" -m planner explain "$run" >"$ROUNDS/explained.txt"
# shellcheck disable=SC2012
"$python" -m planner trend $(ls -d "$ROUNDS"/runs/*/ | tail -n 5) >"$ROUNDS/trend.txt" || echo "re-plan: see trend.txt"
exit "$code"

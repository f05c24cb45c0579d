#!/usr/bin/env bash
# Measures what protection costs, one workload after another, each with queue managers of its own, and makes the measured parts
# of docs/measurements.md and of docs/measurements/*.md, their charts, and the page docs/measurements/report.html, anew.
#
#   tools/measure.sh BULLA             the standard subset
#   FULL=1 tools/measure.sh BULLA      every combination
#   ONLY="stream islands" …            these workloads alone; what the others left stays
#
# The queue managers listen on the loopback interface and end with their workload. A goal that is not held is a result, not a failure.
set -euo pipefail
shopt -s nullglob

bulla=$(realpath "$1")
results=docs/measurements
# The command stands in the results: without the machine's own path.
PATH=$(dirname "$bulla"):$PATH
goal_missed=8

mkdir -p "$results"
# Nothing half-done is left among the results, whatever ends this.
aside=$(mktemp -d)
trap 'rm -rf "$aside"' EXIT
trap 'exit 130' INT TERM HUP
began=$SECONDS

keep() { # NEW FILE: complete results take their place; the command in them names that
    sed -i "s#$aside/#$results/#g" "$1"
    mv "$1" "$2"
}

measure() { # WORKLOAD OPTIONS…: its samples replace those of the last time, once they are complete
    local workload=$1 status=0
    shift
    case " ${ONLY:-$workload} " in *" $workload "*) ;; *) return 0 ;; esac
    local file=$results/$workload.jsonl
    echo "== $workload" >&2
    local new=$aside/$workload.jsonl
    bulla perf "$workload" --self --out "$new" "$@" >&2 || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne "$goal_missed" ]; then
        echo "error: bulla perf $workload ended with $status; its last results stay" >&2
        exit 1
    fi
    keep "$new" "$file"
}

# The planner's profile of this machine, then its predictions and what came of them.
plan() { # OPTIONS of both
    case " ${ONLY:-plan-check} " in *" plan-check "*) ;; *) return 0 ;; esac
    local status=0
    echo "== plan-check" >&2
    bulla plan calibrate --quiet -o "$results/profile.toml" "$@" >&2
    bulla plan check --quiet --profile "$results/profile.toml" --out "$aside/plan-check.jsonl" "$@" >&2 || status=$?
    if [ "$status" -ne 0 ] && [ "$status" -ne "$goal_missed" ]; then
        echo "error: bulla plan check ended with $status; its last results stay" >&2
        exit 1
    fi
    keep "$aside/plan-check.jsonl" "$results/plan-check.jsonl"
}

if [ "${FULL:-0}" = 1 ]; then
    plan --seconds 3 --repeats 5
    time=(--seconds 5 --warm-up 1 --repeats 3)
    measure request-reply "${time[@]}" --size 2k,64k,4m --key rsa1024,rsa2048,rsa4096,p256,p521 --reuse 0,32
    measure key-size "${time[@]}" --size 2k,64k --reuse 0,1,32,64,unlimited
    measure key-reuse "${time[@]}" --pairs 1,2,5,10,21
    measure stream --topology channel --seconds 60 --warm-up 2 --repeats 1 --key rsa1024,rsa2048,p256,p521 --reuse 0,1,32,64,unlimited --devices cpu,1a,2a
    measure channel "${time[@]}"
    measure handshake "${time[@]}"
    measure tasks "${time[@]}" --dispatchers 1,2,3,4,5,6,7,8,9,10 --adapters 1,2,3,4,5,6,7,8,9,10
    measure islands "${time[@]}" --quality integrity,privacy,confidentiality
    measure devices "${time[@]}" --reuse 0,32
    measure trade "${time[@]}" --pin --card-carries 5.9
else
    time=(--seconds 1.5 --warm-up 0.5 --repeats 2)
    plan --seconds 1.2 --repeats 3
    measure request-reply "${time[@]}" --size 2k,64k,4m
    measure key-size "${time[@]}" --size 2k --reuse 0,32
    measure key-reuse "${time[@]}" --pairs 1,8
    measure stream --topology channel --seconds 10 --warm-up 2 --repeats 1 --key rsa1024 --reuse 0,1,32,64,unlimited --devices 2a
    measure channel "${time[@]}" --client-certificate true
    measure handshake "${time[@]}" --key rsa2048
    measure tasks "${time[@]}" --dispatchers 1,2 --adapters 1,2,4,10
    measure islands "${time[@]}" --quality confidentiality
    measure devices "${time[@]}" --quality integrity,privacy
    measure trade "${time[@]}" --pin --card-carries 5.9
fi

files=("$results"/*.jsonl)
if [ "${#files[@]}" -eq 0 ]; then
    echo "error: $results holds no results: what does ONLY name?" >&2
    exit 1
fi
pages=()
for page in docs/measurements.md "$results"/*.md; do
    pages+=(--into "$page")
done
bulla perf report "${files[@]}" -o "$results/report.html" "${pages[@]}"
# One chart for each workload that has a section; where these results have no such chart, the last one stays.
for chart in request-reply/rate key-reuse/rate-by-reuse key-size/rate-by-key stream/targets channel/round-trip \
    islands/rate-by-pairs devices/rate trade/throughput; do
    workload=${chart%%/*}
    if bulla perf report "$results/$workload.jsonl" --chart "$chart" -o "$aside/$workload.svg"; then
        mv "$aside/$workload.svg" "$results/$workload.svg"
    fi
done
echo "measured in $((SECONDS - began)) s; the page is $results/report.html" >&2

#!/bin/sh
# Makes .venv with everything that the commands and the tests need; does nothing when it is up to date.
# A missing Python, Java or network ends it with one sentence and exit code 4.
#   HEADWATER_PYTHON=/path/to/python   take this Python
#   HEADWATER_NO_JAVA=1                go on without Java, which only running pipelines needs
set -eu
cd "$(dirname "$0")/.."

LOCK=requirements-lock.txt
LOG=.venv/setup.log
STAMP=.venv/setup.stamp
STEP=10 # packages between two words of progress

say() { printf 'setup: %s\n' "$*"; }

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 4
}

fingerprint() { # the folder counts too: a virtual environment that was moved does not work
    { pwd -P && cat pyproject.toml "$LOCK" tools/setup.sh; } | cksum
}

is_suitable() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for name in ${HEADWATER_PYTHON:+"$HEADWATER_PYTHON"} python3 python3.13 python3.12 python3.11; do
        if is_suitable "$name"; then
            printf '%s\n' "$name"
            return
        fi
    done
    return 1
}

java_major() {
    java=java
    if [ -n "${JAVA_HOME:-}" ] && [ -x "$JAVA_HOME/bin/java" ]; then
        java=$JAVA_HOME/bin/java
    fi
    "$java" -version 2>&1 |
        sed -n -e 's/.*version "1\.\([0-9][0-9]*\).*/\1/p' -e t -e 's/.*version "\([0-9][0-9]*\).*/\1/p' | sed -n 1p
}

check_java() {
    if [ "${HEADWATER_NO_JAVA:-}" = 1 ]; then
        say "going on without Java, as HEADWATER_NO_JAVA=1 asks"
        return
    fi
    major=$(java_major)
    if [ "${major:-0}" -lt 17 ]; then
        fail "Java 17 or newer is needed to run pipelines, found ${major:-none}. Install it (Debian: apt install" \
            "openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME, then run 'make setup' again;" \
            "HEADWATER_NO_JAVA=1 goes on without it."
    fi
}

run_pip() { # pip's own words go to the log; the screen gets a count
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off "$@" >>"$LOG" 2>&1 &
    pip=$!
    trap 'kill "$pip" 2>/dev/null; exit 130' INT
    trap 'kill "$pip" 2>/dev/null; exit 143' TERM HUP
    told=0
    while kill -0 "$pip" 2>/dev/null; do
        fetched=$(grep -c '^Collecting ' "$LOG" || true)
        if [ "$fetched" -ge $((told + STEP)) ]; then
            told=$fetched
            say "$fetched of $COUNT packages fetched"
        fi
        sleep 0.2 2>/dev/null || sleep 1 # parts of a second are not known everywhere
    done
    status=0
    wait "$pip" || status=$?
    trap - INT TERM HUP
    return "$status"
}

explain_failure() {
    if grep -Eqi 'no space left' "$LOG"; then
        fail "the disk is full; about 2 GB are needed. Free some space and run 'make setup' again. Details: $LOG"
    fi
    if grep -Eqi 'connection|resolution|timed? ?out|unreachable|proxy|certificate|from versions: none' "$LOG"; then
        fail "the packages could not be downloaded. Check the network, and PIP_INDEX_URL and the proxy if you use them," \
            "then run 'make setup' again. Details: $LOG"
    fi
    fail "installing the packages failed. Details: $LOG"
}

[ -f "$LOCK" ] || fail "the file $LOCK is missing; get the whole repository."
wanted=$(fingerprint)
if [ -x .venv/bin/python ] && [ -x .venv/bin/headwater ] && [ "$(cat "$STAMP" 2>/dev/null)" = "$wanted" ]; then
    exit 0
fi

if python=$(find_python); then
    check_java
else
    fail "Python 3.11 or newer with its venv module is needed, and none of python3, python3.13, python3.12, python3.11" \
        "is that. Install it (Debian: apt install python3 python3-venv; macOS: brew install python@3.12), or name one" \
        "in HEADWATER_PYTHON, then run 'make setup' again."
fi

# A virtual environment that still works is kept and brought up to date; any other is made anew.
if ! is_suitable .venv/bin/python || ! grep -qF "$(pwd -P)/.venv/bin/python" .venv/bin/pip 2>/dev/null; then
    say "making .venv with $("$python" -c 'import sys; print("Python %d.%d.%d" % sys.version_info[:3])')"
    rm -rf .venv
    mkdir .venv
    "$python" -m venv .venv >"$LOG" 2>&1 || fail "'$python -m venv .venv' failed. Details: $LOG"
fi
rm -f "$STAMP"
: >"$LOG"

COUNT=$(grep -c '==' "$LOCK")
say "installing $COUNT packages, about 650 MB, once"
run_pip -r "$LOCK" || explain_failure
run_pip --no-deps --no-build-isolation -e . || explain_failure
# As an installed package has it: else every start compiles the sources anew where the environment forbids to keep that.
.venv/bin/python -m compileall -q src >>"$LOG" 2>&1 || fail "the sources cannot be compiled. Details: $LOG"
prepare=--prepare
[ "${HEADWATER_NO_JAVA:-}" = 1 ] && prepare=--compile
say "compiling the search, fetching jars (54 MB) and preparing Java, once"
.venv/bin/headwater doctor "$prepare" >>"$LOG" || fail "something is still missing: run '.venv/bin/headwater doctor'. Details: $LOG"
printf '%s\n' "$wanted" >"$STAMP"
say "ready: the command is .venv/bin/headwater"

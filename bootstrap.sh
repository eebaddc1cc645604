#!/usr/bin/env bash
# Install the programs that the rig needs: `bootstrap.sh run` for `make run`, `bootstrap.sh test` for `make test`.
# On Debian and Ubuntu it installs what is missing, as root or through sudo. If it cannot, it changes nothing and prints
# one line that lists exactly what is missing. If nothing is missing, it prints nothing and ends within milliseconds.
set -euo pipefail

# Some programs are in sbin directories, which are not on every user's PATH.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
DEBIAN_KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly DEBIAN_KEYRING

# Program or file -> its Debian package. "|" separates alternatives, the best first; a name with a slash is a file.
needs_of_run=(
    "qemu-system-x86_64  qemu-system-x86"
    "mmdebstrap          mmdebstrap"
    "mke2fs              e2fsprogs"
    "make                make"
    "$DEBIAN_KEYRING     debian-archive-keyring"
)
# Without it, user-mode machines cannot run on a processor with AMX (vm-images/xstate.c).
if grep --quiet amx_tile /proc/cpuinfo 2>/dev/null; then needs_of_run+=("gcc                 gcc"); fi
# chromium opens the report as a reader would; vagrant (or ruby, where vagrant is not packaged) reads the Vagrantfile; npm
# fetches the source of releases of SQLite; gcc and the C library's headers build them, some with a bug planted; cpio
# unpacks our archives; db_bench measures RocksDB for claims; mdb_dump shows an exported database of LMDB; libdw
# walks the stack of a program as it does in a guest; rustc and javac build the examples.
needs_of_test=(
    "${needs_of_run[@]}"
    "git                 git"
    "gcc                 gcc"
    "/usr/include/stdio.h  libc6-dev"
    "npm                 npm"
    "cpio                cpio"
    "db_bench            rocksdb-tools"
    "mdb_dump            lmdb-utils"
    "/usr/lib/x86_64-linux-gnu/libdw.so.1  libdw1t64|libdw1"
    "rustc               rustc"
    "javac               default-jdk-headless"
    "chromium|chromium-browser|google-chrome  chromium"
    "vagrant|ruby        vagrant|ruby"
)

say() { printf 'bootstrap: %s\n' "$*" >&2; }

present() {
    local candidate
    local -a candidates
    IFS='|' read -ra candidates <<<"$1"
    for candidate in "${candidates[@]}"; do
        if [[ $candidate == /* ]]; then
            [[ -e $candidate ]] && return 0
        elif type -P "$candidate" >/dev/null; then
            return 0
        fi
    done
    return 1
}

# Find a Python that can run the rig and make a virtual environment; Debian has ensurepip in a separate package.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            type -P "$candidate"
            return 0
        fi
    done
    return 1
}

missing_needs() {
    local need
    for need in "$@"; do
        # shellcheck disable=SC2086 # two columns
        set -- $need
        present "$1" || printf '%s\n' "$need"
    done
}

available() { [[ -n $(apt-cache --quiet=2 show --no-all-versions "$1" 2>/dev/null) ]]; }

# The distribution's own Python, unless it is known to be too old.
python_packages() {
    local minor
    minor=$(apt-cache policy python3 2>/dev/null | sed -nE 's/^ *Candidate: ([0-9]+:)?3\.([0-9]+).*/\2/p')
    if [[ -n $minor && $minor -lt 11 ]]; then echo "python3.11 python3.11-venv"; else echo "python3 python3-venv"; fi
}

# For each need, print the first alternative that this distribution has.
packages_for() {
    local need package
    local -a alternatives
    for need in "$@"; do
        read -r _ package <<<"$need"
        IFS='|' read -ra alternatives <<<"$package"
        for package in "${alternatives[@]}"; do
            if available "$package"; then break; fi
        done
        if [[ $package == python ]]; then python_packages; else echo "$package"; fi
    done
}

as_root=()
may_become_root() {
    if [[ $(id -u) == 0 ]]; then return 0; fi
    type -P sudo >/dev/null || return 1
    as_root=(sudo)
    # Without a terminal sudo cannot ask for a password.
    if [[ ! -t 0 ]]; then as_root=(sudo -n); fi
    "${as_root[@]}" true 2>/dev/null
}

# Packages print hundreds of lines: keep them in an unlinked file, and show them only if the command fails.
quietly() {
    local log status=0 said
    log=$(mktemp)
    exec {said}<>"$log"
    rm -f "$log"
    "$@" >&"$said" 2>&1 || status=$?
    if [[ $status != 0 ]]; then cat "/dev/fd/$said" >&2; fi
    exec {said}>&-
    return "$status"
}

apt_get() {
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get --quiet=2 --option DPkg::Lock::Timeout=300 --option Acquire::Retries=3 "$@" </dev/null
}

install_packages() {
    local -a packages
    local attempt
    for attempt in first second; do
        mapfile -t packages < <(packages_for "${missing[@]}" | tr ' ' '\n')
        say "installing: ${packages[*]}"
        if apt_get install --no-install-recommends --yes "${packages[@]}"; then return 0; fi
        if [[ $attempt == first ]]; then say "trying again with fresh package lists"; apt_get update || true; fi
    done
    say "apt-get could not install: ${packages[*]}"
    return 1
}

usage() {
    say "usage: bootstrap.sh run | test | python"
    exit 2
}

[[ $# == 1 ]] || usage
case $1 in
run) needs=("${needs_of_run[@]}") ;;
test) needs=("${needs_of_test[@]}") ;;
python)
    find_python && exit 0
    say "no Python >= 3.11 with the venv module was found${PYTHON:+ under the name PYTHON=$PYTHON}"
    exit 1
    ;;
*) usage ;;
esac

look_for_missing() {
    mapfile -t missing < <(missing_needs "${needs[@]}")
    # An existing environment has its Python; only a fresh clone needs to find one.
    if [[ ! -x $(dirname "$0")/.venv/bin/python ]] && ! find_python >/dev/null; then
        missing+=("python3>=3.11-with-venv  python")
    fi
}

look_for_missing
if [[ ${#missing[@]} == 0 ]]; then exit 0; fi

if ! type -P apt-get dpkg >/dev/null; then
    say "this is neither Debian nor Ubuntu; please install the packages that provide: $(printf '%s\n' "${missing[@]}" | awk '{print $1}' | paste -sd' ')"
    exit 1
fi
if ! may_become_root; then
    say "programs are missing and this user may not install them; have an administrator run:" \
        "apt-get install --no-install-recommends $(packages_for "${missing[@]}" | paste -sd' ')"
    exit 1
fi
# A fresh machine has no package lists, and apt then knows none of the alternatives.
apt_get update || say "apt-get update failed; continuing with the existing package lists"
install_packages
look_for_missing
if [[ ${#missing[@]} != 0 ]]; then
    say "still missing after the installation: $(printf '%s\n' "${missing[@]}" | awk '{print $1}' | paste -sd' ')"
    exit 1
fi

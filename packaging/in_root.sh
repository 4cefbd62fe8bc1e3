#!/bin/sh
# packaging/in_root.sh WHEEL SUITE [MIRROR]: installs the wheel in a new root of a Debian or Ubuntu SUITE, without gcc,
# and runs a real MPI program there: first on a "compute node" (only what pdla itself requires), then the whole loop.
#
# Needs root, debootstrap and PyPI. The root is made in $TMPDIR and removed. If the Python of the suite is older than
# 3.11, the script loads the libraries with that Python and says so.
set -eu

wheel=$1 suite=$2 mirror=${3:-http://deb.debian.org/debian}
# A suite that is newer than debootstrap is made as the others of its distribution are.
script=/usr/share/debootstrap/scripts/$suite
[ -e "$script" ] || case $mirror in *ubuntu*) script=${script%/*}/gutsy ;; *) script=${script%/*}/sid ;; esac
root=$(mktemp -d)
trap 'umount -R "$root/proc" "$root/dev" "$root/sys" 2>/dev/null || true; rm -rf --one-file-system "$root"' EXIT

# Ubuntu has python3-venv in the component universe.
debootstrap --components="$(case $mirror in *ubuntu*) echo main,universe ;; *) echo main ;; esac)" --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$root" "$mirror" "$script" > "$root.log" ||
    { tail -5 "$root.log"; exit 1; }
rm -f "$root.log"
# This machine's way to PyPI.
cp /etc/resolv.conf "$root/etc/" && cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
mount --bind /dev "$root/dev" && mount -t proc proc "$root/proc" &&
    mount --rbind /sys "$root/sys" && mount --make-rslave "$root/sys"
cp "$wheel" "$root/tmp/"

chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
    sh -eu -c 'wheel=$1; cd /root
. /etc/os-release; echo "== $PRETTY_NAME, $(python3 --version), $(ldd --version | head -1)"
! command -v gcc
if ! python3 -c "import sys; sys.exit(sys.version_info < (3, 11))"; then
    python3 -c "
import ctypes, sys, zipfile
zipfile.ZipFile(sys.argv[1]).extractall(\"wheel\")
for name in \"libpdla\", \"libpdla-posix\", \"libpdla-coherence\", \"libpdla-simulator\", \"libpdla-decoder\":
    ctypes.CDLL(f\"wheel/pdla/{name}.so\")
" "$wheel"
    LD_PRELOAD=$PWD/wheel/pdla/libpdla.so true
    echo "The libraries load. Its Python is too old for pdla itself."
    exit
fi
python3 -m venv venv; PATH=$PWD/venv/bin:$PATH
pip install --quiet --disable-pip-version-check "$wheel" mpich "mpi4py>=4"
! pip list 2>/dev/null | grep -E "^(pandas|matplotlib|alembic|SQLAlchemy|highspy|h5py) "
slabs=$(python3 -c "import pdla, pathlib; print(pathlib.Path(pdla.__file__).parent / \"examples/slabs.py\")")
head -c 16M /dev/urandom > data
program="mpiexec -n 4 python3 $slabs data 16 512 512"
$program | sort | tee native
pdla --version; pdla run -- $program > out; sort out | cmp native -
ls .local/share/pdla/reports/run.*.json
! pdla status

pip install --quiet --disable-pip-version-check "$wheel[plan,report]"
pdla status
pdla trace -o run.h5 -- $program > out; sort out | cmp native -
pdla plan run.h5 -o plan.json
pdla replicate plan.json
pdla run --json -- $program > out; head -n -1 out | sort | cmp native -
tail -1 out | python3 -c "import json, sys; run = json.load(sys.stdin); print(run[\"replica_bytes\"], \"bytes from replicas\"); sys.exit(run[\"replica_bytes\"] != 16 << 20)"
pdla report run.h5 -o report.html > /dev/null
pdla doctor | head -5
echo "== all of it works"' sh "/tmp/$(basename "$wheel")"

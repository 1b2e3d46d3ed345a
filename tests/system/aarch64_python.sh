#!/usr/bin/env bash
# A Python of Debian's for 64-bit ARM and what Headwise needs to translate there, in a folder; run by qemu-aarch64-static.
#
#     aarch64_python.sh DIR PIP...
#
# DIR/root is what runs and DIR/packages is for PYTHONPATH. The system's own packages stay as they are, but for qemu,
# which is installed where it is missing and that is allowed. Fails with a line that says what is missing.
set -euo pipefail
made=$1
shift
[ -f "$made/complete" ] && exit
command -v apt-get dpkg >/dev/null || { echo "aarch64_python.sh needs apt-get and dpkg (Debian or Ubuntu)" >&2; exit 1; }
if ! command -v qemu-aarch64-static >/dev/null; then
  { apt-get -qq update && apt-get -qq install -y qemu-user-static; } >/dev/null 2>&1 ||
    { echo "aarch64_python.sh needs qemu-aarch64-static and may not install it: apt-get install qemu-user-static" >&2; exit 1; }
fi
rm -rf "$made"
mkdir -p "$made"/{debs,root,state/lists/partial,cache/archives/partial}
made=$(cd "$made" && pwd)
touch "$made/state/status"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User= -o "Dir::Cache=$made/cache"
  -o "Dir::State=$made/state" -o "Dir::State::status=$made/state/status")
apt-get "${options[@]}" update
# Which python3.N is Debian's says the package python3-minimal.
python=$(apt-cache "${options[@]}" depends python3-minimal | grep -om1 'python3\.[0-9]*')
for package in "$python"-minimal "lib$python"-minimal "lib$python"-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 \
  libffi8 libbz2-1.0 liblzma5 libuuid1; do
  (cd "$made/debs" && apt-get "${options[@]}" download "$package")
done
for file in "$made"/debs/*.deb; do dpkg -x "$file" "$made/root"; done
ln -sf "$python" "$made/root/usr/bin/python3"
platforms=(--platform manylinux_2_28_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64)
"$@" --no-deps --only-binary=:all: "${platforms[@]}" --python-version "${python#python}" --target "$made/packages" \
  numpy safetensors tokenizers
rm -rf "$made"/{debs,state,cache}
touch "$made/complete"

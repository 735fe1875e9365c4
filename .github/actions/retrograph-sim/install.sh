#!/usr/bin/env bash
# Installs retrograph-sim (VERSION of crates.io, or the package in the folder PACKAGE) into RUNNER_TEMP, and tells later steps
# where it is: PATH for the command, LD_LIBRARY_PATH for programs, LIBRARY_PATH for linkers.
set -euo pipefail
folder="$RUNNER_TEMP/retrograph-sim"
if [[ -n "${PACKAGE:-}" ]]; then
    source=(--path "$PACKAGE")
else
    source=("retrograph-sim${VERSION:+@$VERSION}")
fi
cargo install --locked --root "$folder" "${source[@]}"
"$folder/bin/retrograph-sim" library --out "$folder/lib"
[[ -e "$folder/lib/libcuda.so.1" ]]
echo "$folder/bin" >> "$GITHUB_PATH"
{
    echo "LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    echo "LIBRARY_PATH=$folder/lib${LIBRARY_PATH:+:$LIBRARY_PATH}"
} >> "$GITHUB_ENV"
echo "library=$folder/lib" >> "$GITHUB_OUTPUT"

"""A stand-in for Miniforge's installer, since no conda channel can be reached where tests run.

It understands what Hearth asks of the real one: `bash INSTALLER -b -p FOLDER`, and then
`FOLDER/bin/conda create --yes --quiet -n NAME --override-channels -c CHANNEL python=3.11 pip`; it
then makes a venv of the machine's own Python; without `pip` it has none, as with newer
solvers. Each call is noted in FOLDER/calls. FOLDER/etc/profile.d/conda.sh defines `conda activate`,
which searches the folders that conda searches unless it is configured.
"""

from __future__ import annotations

INSTALLER = r"""#!/usr/bin/env bash
# Stand-in for Miniforge3-Linux-x86_64.sh
set -euo pipefail
[[ $1 == -b && $2 == -p && ! -e $3 ]] || { echo "stand-in: unexpected: $*" >&2; exit 2; }
mkdir -p "$3/bin" "$3/envs"
cat >"$3/bin/conda" <<'CONDA'
#!/usr/bin/env bash
set -euo pipefail
here=$(dirname "$(dirname "$0")")
echo "$* in $CONDA_ENVS_DIRS" >>"$here/calls"
[[ $1 == create && $4 == -n && $7 == -c && $9 == python=3.11 ]] || exit 2
if [[ $8 != conda-forge ]]; then
    echo "UnavailableInvalidChannel: HTTP 404 NOT FOUND for channel $8" >&2
    exit 1
fi
without=(--without-pip)
[[ ${10:-} == pip ]] && without=()
python3 -m venv "${without[@]}" "$CONDA_ENVS_DIRS/$5"
CONDA
chmod +x "$3/bin/conda"
mkdir -p "$3/etc/profile.d"
cat >"$3/etc/profile.d/conda.sh" <<CONDA
conda() {
    for folder in "$3/envs" "\$HOME/.conda/envs"; do
        [ "\$1" = activate ] && [ -d "\$folder/\$2" ] && PATH=\$folder/\$2/bin:\$PATH && return
    done
    return 1
}
CONDA
"""

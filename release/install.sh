#!/bin/sh
# Installs or upgrades pinfold from this bundle, with no network; docs/install.md by hand does the same.
set -eu
cd "$(dirname "$0")"

usage() {
    cat << 'END'
Usage: ./install.sh [--prefix DIR]
Installs or upgrades pinfold from this directory. Needs root and no network.

  --prefix DIR  where the program goes (default /opt/pinfold, which is what the unit says)

It checks SHA256SUMS, makes a virtual environment, installs the wheels, the systemd unit, the group, the directories, the manual
page and shell completion, and an example configuration where there is none. It starts and restarts nothing; pods and pins stay.
PYTHON=python3.11 chooses the interpreter.
END
}

die() {
    echo "install.sh: $1" >&2
    exit "${2:-3}"
}

prefix=/opt/pinfold
while [ $# -gt 0 ]; do
    case $1 in
        --prefix)
            [ $# -ge 2 ] || die "--prefix needs a directory" 2
            prefix=$2
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) die "unknown option $1; ./install.sh --help" 2 ;;
    esac
done
case $prefix in
    /*) ;;
    *) die "--prefix $prefix: give an absolute path" 2 ;;
esac

[ "$(id -u)" = 0 ] || die "needs root"
sha256sum --check --quiet SHA256SUMS || die "the bundle is damaged: get it again; nothing has been installed"
wanted=$(sed -n 's/^needs Python \([0-9.]*\) .*/\1/p' BUNDLE.txt)
python=${PYTHON:-$(command -v "python$wanted" || command -v python3 || true)}
[ -n "$python" ] || die "needs Python $wanted: install it, or say where with PYTHON="
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || die "$python is not a Python"
[ "$found" = "$wanted" ] || die "this bundle is for Python $wanted, $python is $found: PYTHON=... names another, or make a bundle for $found"

"$python" -m venv --without-pip "$prefix"
PYTHONPATH=$(echo wheels/pip-*.whl) "$prefix/bin/python" -m pip install --quiet --no-index --find-links wheels --upgrade --force-reinstall pinfold
share=$prefix/share

link() {
    mkdir -p "$(dirname "$2")"
    ln -sf "$1" "$2"
}
link "$prefix/bin/pinfold" /usr/local/bin/pinfold
link "$share/man/man1/pinfold.1" /usr/local/share/man/man1/pinfold.1
link "$share/bash-completion/completions/pinfold" /usr/local/share/bash-completion/completions/pinfold
link "$share/zsh/site-functions/_pinfold" /usr/local/share/zsh/site-functions/_pinfold
link "$share/fish/vendor_completions.d/pinfold.fish" /usr/local/share/fish/vendor_completions.d/pinfold.fish

units=$share/pinfold/systemd
mkdir -p /etc/systemd/system
sed "s#/opt/pinfold/#$prefix/#g" "$units/pinfold.service" > /etc/systemd/system/pinfold.service.new
mv /etc/systemd/system/pinfold.service.new /etc/systemd/system/pinfold.service
install -D -m 0644 "$units/sysusers.d/pinfold.conf" /etc/sysusers.d/pinfold.conf
install -D -m 0644 "$units/tmpfiles.d/pinfold.conf" /etc/tmpfiles.d/pinfold.conf
if command -v systemd-sysusers > /dev/null; then
    systemd-sysusers
    systemd-tmpfiles --create /etc/tmpfiles.d/pinfold.conf
fi
[ -e /etc/pinfold/config.yaml ] || install -D -m 0644 "$units/config.yaml" /etc/pinfold/config.yaml
[ ! -d /run/systemd/system ] || systemctl daemon-reload

/usr/local/bin/pinfold --version
echo "Next: look at /etc/pinfold/config.yaml, run 'pinfold config check' and 'pinfold doctor', then 'systemctl enable --now pinfold'"
echo "(after an upgrade 'systemctl restart pinfold'). Nothing has been started."

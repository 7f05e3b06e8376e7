#!/bin/sh
# Man pages that man and mandoc have nothing to say about, for each command; completion that bash, zsh and fish, where they are
# here, give for a command and for a flag.
# usage: manual.sh TRIREME
set -eu
trireme=$(realpath "$1")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$trireme" manual man pages
"$trireme" manual bash >trireme.bash
"$trireme" manual zsh >_trireme
"$trireme" manual fish >trireme.fish

fail() {
    echo "$*" >&2
    exit 1
}

for command in $("$trireme" --help | sed -n 's/^  \([a-z0-9][a-z0-9]*\)  *[a-z].*/\1/p' | grep -v '^trireme$'); do
    [ -s "pages/trireme-$command.1" ] || fail "no page for $command"
done
grep -q 'elastic' pages/trireme-train.1 || fail "trireme-train.1 does not speak of --elastic"
grep -q 'checkpoint.every_steps' pages/trireme-config.5 || fail "trireme-config.5 does not speak of checkpoint.every_steps"
for page in pages/*; do
    if command -v man >/dev/null && command -v groff >/dev/null; then
        LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 -Z "$page" 2>said >/dev/null || fail "man: $page"
        [ ! -s said ] || fail "$page: $(cat said)"
    fi
    if command -v mandoc >/dev/null; then
        mandoc -T lint -W warning "$page" >said 2>&1 || fail "$page: $(cat said)"
    fi
done

want() {
    shell=$1 wanted=$2 found=$3
    echo "$found" | tr ' ' '\n' | grep -q -x -e "$wanted" || fail "$shell: want $wanted among: $found"
}
bash_words() {
    bash --norc -c 'source ./trireme.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trireme; echo "${COMPREPLY[@]}"' bash "$@"
}
want bash train "$(bash_words trireme tr)"
want bash --elastic "$(bash_words trireme train --el)"
want bash checkpoint.every_steps= "$(bash_words trireme train checkpoint.ev)"
want bash --within "$(bash_words trireme health run --w)"
if command -v zsh >/dev/null; then
    want zsh train "$(zsh -f -c 'compdef() { :; }; source ./_trireme; _trireme_words ""')"
    want zsh --elastic "$(zsh -f -c 'compdef() { :; }; source ./_trireme; _trireme_words train')"
fi
if command -v fish >/dev/null; then
    want fish train "$(fish --no-config -c 'source trireme.fish; complete -C "trireme tr"' | cut -f 1)"
    want fish --elastic "$(fish --no-config -c 'source trireme.fish; complete -C "trireme train --el"' | cut -f 1)"
fi
